//! The optimizer step of a rank as two programs, between which the ranks make the norm of all
//! gradients.
//!
//! The formulas are functions of the language's standard library; this pass only calls them. The
//! first program takes `g.NAME` (f32, flat) of each parameter and gives the sum of its squares. The
//! second takes the scalars of [`SCALARS`], `norm`, and of each parameter `g.NAME`, `w.NAME`,
//! `m.NAME`, `v.NAME`; it clips, updates and gives `w.NAME`, `m.NAME`, `v.NAME`.

use crate::manager::PassError;
use vlmc_ir::dim::Dim;
use vlmc_ir::graph::{Function, Program, Value};
use vlmc_ir::ops::Op;
use vlmc_ir::ty::{DType, Ty};

/// Scalar inputs, f32. `clip` is the largest norm allowed, 0 for any; `decay` is for parameters that
/// decay and `no_decay` for those that are declared not to.
pub const SCALARS: [&str; 9] =
    ["clip", "lr", "beta1", "beta2", "eps", "decay", "no_decay", "correction1", "correction2"];

/// A parameter to update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OptimizerParam {
    /// Checkpoint name.
    pub name: String,
    /// Elements.
    pub elements: i64,
    /// Whether weight decay applies.
    pub decay: bool,
}

/// Gives a function of the standard library for vectors of `n` elements.
pub type Library<'l> = dyn FnMut(&str, i64) -> Result<Function, PassError> + 'l;

/// Builds the program of the squares.
///
/// # Errors
/// Those of `library`, and a function that does not take what it should.
pub fn squares_program(
    params: &[OptimizerParam],
    library: &mut Library<'_>,
) -> Result<Program, PassError> {
    let mut p = Program { name: "squares".to_string(), ..Program::default() };
    let mut main = Function::new("main");
    for q in params {
        let g = main.add_input(&format!("g.{}", q.name), vector(q.elements), None);
        let callee = instance(&mut p, "square_sum", q.elements, library)?;
        let s = call(&mut main, &p, &callee, &[g])?;
        main.add_output(Some(&q.name), s);
    }
    p.functions.push(main);
    Ok(p)
}

/// Builds the program of the update.
///
/// # Errors
/// Those of `library`, and a function that does not take what it should.
pub fn optimizer_program(
    params: &[OptimizerParam],
    library: &mut Library<'_>,
) -> Result<Program, PassError> {
    let mut p = Program { name: "optimizer".to_string(), ..Program::default() };
    let mut main = Function::new("main");
    let scalar = Ty::scalar(DType::F32);
    let scalars: Vec<Value> =
        SCALARS.iter().map(|s| main.add_input(s, scalar.clone(), None)).collect();
    let [clip, lr, beta1, beta2, eps, decay, no_decay, correction1, correction2] = scalars[..]
    else {
        return Err(PassError::new("the scalars are not those of the optimizer"));
    };
    let norm = main.add_input("norm", scalar, None);
    let callee = instance(&mut p, "clip_scale", 0, library)?;
    let scale = call(&mut main, &p, &callee, &[norm, clip])?;
    let mut outputs = vec![];
    for q in params {
        let [g, w, m, v] = ["g", "w", "m", "v"]
            .map(|k| main.add_input(&format!("{k}.{}", q.name), vector(q.elements), None));
        let callee = instance(&mut p, "adamw", q.elements, library)?;
        let decay = if q.decay { decay } else { no_decay };
        let operands = [w, g, m, v, scale, lr, beta1, beta2, eps, decay, correction1, correction2];
        let first = call(&mut main, &p, &callee, &operands)?;
        for (i, k) in ["w", "m", "v"].into_iter().enumerate() {
            let value = Value { node: first.node, result: i as u32 };
            outputs.push((format!("{k}.{}", q.name), value));
        }
    }
    for (name, value) in outputs {
        main.add_output(Some(&name), value);
    }
    p.functions.push(main);
    Ok(p)
}

fn vector(n: i64) -> Ty {
    Ty::new(DType::F32, vec![Dim::from(n)])
}

/// The name of a library function for vectors of `n` elements, added when it is new.
fn instance(
    p: &mut Program,
    name: &str,
    n: i64,
    library: &mut Library<'_>,
) -> Result<String, PassError> {
    let full = if n == 0 { name.to_string() } else { format!("{name}.{n}") };
    if p.function(&full).is_none() {
        let mut f = library(name, n)?;
        f.name.clone_from(&full);
        // Origins point into the library's files, which this program does not list.
        f.nodes.iter_mut().for_each(|node| node.origins.clear());
        p.functions.push(f);
    }
    Ok(full)
}

fn call(
    main: &mut Function,
    p: &Program,
    callee: &str,
    operands: &[Value],
) -> Result<Value, PassError> {
    let f = p.function(callee).ok_or_else(|| PassError::new(format!("there is no @{callee}")))?;
    let tys = f.outputs.iter().map(|o| f.ty(o.value).clone()).collect();
    let op = Op::Call {
        callee: callee.to_string(),
        scope: String::new(),
        path: String::new(),
        layer: None,
    };
    Ok(main.push_node(op, operands.to_vec(), tys, None).into())
}
