//! What nodes take: floating-point operations, bytes of memory traffic, microseconds.
//!
//! A kernel takes the longer of its arithmetic and its traffic, and the start of a launch: the
//! roofline of Williams, Waterman and Patterson, 2009, with the constants of the device that fusion
//! has.

use crate::fuse::Device;
use std::cell::RefCell;
use std::collections::BTreeMap;
use vlmc_ir::dim::Poly;
use vlmc_ir::eval::Sizes;
use vlmc_ir::graph::{Function, NodeId, Program, Value};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::Ty;

/// Operations a microsecond that large products reach: two thirds of an H200's 989 TFLOPS in bf16.
const MATRIX_RATE: f64 = 6.6e8;

/// Work of some nodes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Microseconds on the device.
    pub micros: f64,
}

impl Work {
    /// The work of both.
    pub fn plus(self, o: Work) -> Work {
        Work {
            flops: self.flops.saturating_add(o.flops),
            bytes: self.bytes.saturating_add(o.bytes),
            micros: self.micros + o.micros,
        }
    }
}

/// The value of a formula; 0 where a size is unknown.
pub fn value_of(formula: &Poly, sizes: &Sizes) -> u64 {
    let v = formula.eval(&|s| sizes.get(s).and_then(|v| i64::try_from(v).ok()));
    v.and_then(|v| u64::try_from(v).ok()).unwrap_or(0)
}

/// Bytes of a value of this type.
pub fn bytes_of(ty: &Ty, sizes: &Sizes) -> u64 {
    value_of(&ty.bytes(), sizes)
}

/// Counts the work of nodes of a program.
pub struct Costs<'p> {
    program: &'p Program,
    index: BTreeMap<&'p str, usize>,
    sizes: &'p Sizes,
    device: Device,
    /// Work of calls that has been counted, by function and results read.
    known: RefCell<BTreeMap<(usize, Vec<bool>), Work>>,
}

impl<'p> Costs<'p> {
    /// For a program at these sizes.
    pub fn new(program: &'p Program, sizes: &'p Sizes) -> Self {
        let index = program.functions.iter().enumerate().map(|(i, f)| (&*f.name, i)).collect();
        let known = RefCell::default();
        Costs { program, index, sizes, device: Device::default(), known }
    }

    /// Work of what the results in `wanted` of a whole function take.
    fn results(&self, f: &Function, wanted: impl Iterator<Item = Value>) -> Work {
        let mut live = vec![false; f.nodes.len()];
        let mut read: Vec<Vec<bool>> = f.nodes.iter().map(|n| vec![false; n.tys.len()]).collect();
        let mut mark = |v: Value, live: &mut Vec<bool>| {
            live[v.node.0 as usize] = true;
            if let Some(r) = read[v.node.0 as usize].get_mut(v.result as usize) {
                *r = true;
            }
        };
        wanted.for_each(|v| mark(v, &mut live));
        for i in (0..f.nodes.len()).rev() {
            if live[i] {
                f.nodes[i].operands.iter().for_each(|v| mark(*v, &mut live));
            }
        }
        let live = f.node_ids().filter(|id| live[id.0 as usize]);
        live.fold(Work::default(), |sum, id| sum.plus(self.node(f, id, &read[id.0 as usize])))
    }

    /// Work of the whole program, once through main.
    pub fn main(&self) -> Work {
        self.program.main().map_or_else(Work::default, |f| {
            f.node_ids().fold(Work::default(), |sum, id| {
                sum.plus(self.node(f, id, &vec![true; f.node(id).tys.len()]))
            })
        })
    }

    /// Work of a node of which the results in `read` are needed: of a call that is no cluster, what
    /// those take.
    pub fn node(&self, f: &Function, id: NodeId, read: &[bool]) -> Work {
        let node = f.node(id);
        let operands: Vec<Ty> = node.operands.iter().map(|v| f.ty(*v).clone()).collect();
        let traffic = value_of(&node.op.bytes(&operands, &node.tys), self.sizes);
        match &node.op {
            Op::Input { .. } | Op::Param { .. } | Op::Reshape { .. } => Work::default(),
            Op::Call { callee, .. } => {
                let Some(index) = self.index.get(&**callee).copied() else {
                    return Work::default();
                };
                let g = &self.program.functions[index];
                let key = (index, if g.cluster.is_some() { vec![] } else { read.to_vec() });
                let known = self.known.borrow().get(&key).copied();
                let work = known.unwrap_or_else(|| match g.cluster {
                    None => {
                        let wanted = g.outputs.iter().zip(read).filter(|(_, r)| **r);
                        self.results(g, wanted.map(|(o, _)| o.value))
                    }
                    Some(_) => {
                        let flops = g.nodes.iter().fold(0u64, |sum, n| {
                            let of: Vec<Ty> = n.operands.iter().map(|v| g.ty(*v).clone()).collect();
                            sum.saturating_add(value_of(&n.op.flops(&of, &n.tys), self.sizes))
                        });
                        self.kernel(flops, traffic, self.device.issue)
                    }
                });
                self.known.borrow_mut().insert(key, work);
                work
            }
            op => {
                let flops = value_of(&op.flops(&operands, &node.tys), self.sizes);
                let rate = match op.info().class {
                    Class::Contraction | Class::Sequence => MATRIX_RATE,
                    _ => self.device.issue,
                };
                self.kernel(flops, traffic, rate)
            }
        }
    }

    fn kernel(&self, flops: u64, bytes: u64, rate: f64) -> Work {
        let busy = (flops as f64 / rate).max(bytes as f64 / self.device.bandwidth);
        Work { flops, bytes, micros: self.device.launch + busy }
    }
}
