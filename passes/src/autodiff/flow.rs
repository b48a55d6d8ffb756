//! Which values depend on something whose gradient is wanted, and the element type it is to have.

use super::reverse::Differentiator;
use vlmc_ir::graph::Function;
use vlmc_ir::ops::{Class, Gradient, Op};
use vlmc_ir::ty::DType;

/// One entry a result of a node.
pub(super) type Wanted = Vec<Vec<Option<DType>>>;

impl Differentiator<'_> {
    /// For each result of each node the element type of its gradient, `None` when it depends on no
    /// parameter and on no input that has one in `inputs`, or no gradient passes.
    ///
    /// Of a parameter it is f32, and so it is of a view of one, so that the gradient is not rounded
    /// on its way. Of all other values it is their own.
    pub(super) fn wanted(&mut self, f: &Function, inputs: &[Option<DType>]) -> Wanted {
        let mut wanted: Wanted = Vec::with_capacity(f.nodes.len());
        for node in &f.nodes {
            let of: Vec<Option<DType>> = node
                .operands
                .iter()
                .map(|v| wanted[v.node.0 as usize][v.result as usize])
                .collect();
            let float = |i: usize| Some(node.tys[i].dtype).filter(|d| d.is_float());
            let results = 0..node.tys.len();
            wanted.push(match &node.op {
                Op::Input { index } => {
                    let given = inputs.get(*index as usize).copied().flatten();
                    vec![given.filter(|_| float(0).is_some())]
                }
                Op::Param { .. } => vec![float(0).map(|_| DType::F32)],
                Op::Call { callee, .. } => {
                    let mask = of.iter().map(Option::is_some).collect();
                    let varied = self.varied(callee, mask);
                    results.map(|i| float(i).filter(|_| varied.get(i) == Some(&true))).collect()
                }
                op if matches!(op.info().gradient, Gradient::None) => vec![None; node.tys.len()],
                op => {
                    let any = of.iter().any(Option::is_some);
                    let view = op.info().class == Class::View;
                    let main = view && of.contains(&Some(DType::F32));
                    let dtype = |d| if main { DType::F32 } else { d };
                    results.map(|i| float(i).filter(|_| any).map(dtype)).collect()
                }
            });
        }
        wanted
    }

    /// For each result of a function whether it depends on a parameter or on one of the inputs in
    /// `mask`.
    fn varied(&mut self, callee: &str, mask: Vec<bool>) -> Vec<bool> {
        let program = self.program;
        let Some(index) = self.index.get(callee).copied() else { return vec![] };
        if let Some(known) = self.varied.get(&(index, mask.clone())) {
            return known.clone();
        }
        let f = &program.functions[index];
        let inputs: Vec<Option<DType>> = f
            .inputs
            .iter()
            .zip(&mask)
            .map(|(input, varied)| varied.then_some(input.ty.dtype).filter(|d| d.is_float()))
            .collect();
        let wanted = self.wanted(f, &inputs);
        let varied: Vec<bool> = f
            .outputs
            .iter()
            .map(|o| wanted[o.value.node.0 as usize][o.value.result as usize].is_some())
            .collect();
        self.varied.insert((index, mask), varied.clone());
        varied
    }
}
