//! What a cluster must give: its function in exact arithmetic, in f64.
//!
//! A kernel computes in f32 and rounds where its program types a value bf16, as the evaluator does.
//! The reference is the function in f64 with f32 for bf16, rounded at the same places.

use anyhow::{Result, anyhow, bail};
use vlmc_ir::eval::{Evaluator, Sizes, Tensor};
use vlmc_ir::graph::{Function, Output, OutputKind, Program, Value};
use vlmc_ir::ops::{Class, Op};
use vlmc_ir::ty::DType;
use vlmc_ir::verify;

/// Largest error of a bf16 output, and of one that depends on a value which a kernel may or must
/// round to bf16: a rounding is at most 2^-9 of a value, and two of them may meet in an output.
const ROUNDED: f64 = 3e-3;
/// Largest error of an f32 output that is computed in f32 from the inputs on.
const EXACT: f64 = 1e-5;

/// A function of a cluster, widened.
pub struct Reference {
    program: Program,
    /// Largest error of each output, relative to its norm; integers and truth values must be equal.
    pub tolerances: Vec<f64>,
}

impl Reference {
    /// The reference of a function of this program.
    ///
    /// # Errors
    /// When there is no such function, or it has parameters or losses, as no cluster does.
    pub fn new(program: &Program, function: &str) -> Result<Reference> {
        let f = program.function(function);
        let f = f.ok_or_else(|| anyhow!("the program has no function @{function}"))?;
        if !f.params.is_empty() || f.outputs.iter().any(|o| o.kind != OutputKind::Value) {
            bail!("@{function} is no cluster");
        }
        let alone = Program { functions: vec![f.clone()], ..program.clone() };
        // A function that calls others fails here, too.
        if let Some(e) = verify::verify(&alone).first() {
            bail!("{}", e.render(&alone).trim_end());
        }
        let widened = widen(f);
        let program = Program { functions: vec![widened], ..alone };
        if let Some(e) = verify::verify(&program).first() {
            bail!("@{function} cannot be widened: {}", e.render(&program).trim_end());
        }
        Ok(Reference { program, tolerances: tolerances(f) })
    }

    /// The outputs for these inputs, in the order of the function's; floats are typed f32.
    ///
    /// # Errors
    /// When an op fails.
    pub fn run(&self, sizes: &Sizes, inputs: &[Tensor<f64>]) -> Result<Vec<Tensor<f64>>> {
        let Some(f) = self.program.main() else { bail!("no function") };
        let named: Vec<(&str, Tensor<f64>)> = f
            .inputs
            .iter()
            .zip(inputs)
            .map(|(i, t)| (&*i.name, Tensor { dtype: wide(t.dtype), ..t.clone() }))
            .collect();
        let mut no_parameters = |name: &str, _: &_| {
            Err(vlmc_ir::eval::EvalError::new(format!("a cluster has no parameter `{name}`")))
        };
        let mut evaluator = Evaluator::new(&self.program, &mut no_parameters);
        for s in &self.program.symbols {
            if let Some(value) = sizes.get(&s.symbol) {
                evaluator = evaluator.with_size(&s.symbol.0, value);
            }
        }
        let outputs = evaluator.run(&f.name, &named)?;
        Ok(outputs.0.into_iter().map(|o| o.value).collect())
    }
}

fn wide(dtype: DType) -> DType {
    if dtype == DType::Bf16 { DType::F32 } else { dtype }
}

/// The function with f32 for bf16: each result of that type is rounded, and then widened. What only
/// moves values has nothing to round.
fn widen(f: &Function) -> Function {
    let mut out = Function { nodes: vec![], inputs: vec![], outputs: vec![], ..f.clone() };
    // For each node its index in the new function, and whether its results were rounded.
    let mut at: Vec<Vec<Value>> = vec![];
    for node in &f.nodes {
        let operands: Vec<Value> =
            node.operands.iter().map(|v| at[v.node.0 as usize][v.result as usize]).collect();
        let tys: Vec<_> = node.tys.iter().map(|t| t.with_dtype(wide(t.dtype))).collect();
        if let Op::Input { index } = &node.op {
            let input = &f.inputs[*index as usize];
            let from = input.from.clone();
            at.push(vec![out.add_input(&input.name, tys[0].clone(), from)]);
            continue;
        }
        let mut op = node.op.clone();
        // These round already, in their own type; what they give is then widened.
        let rounds =
            matches!(op, Op::Cast { dtype: DType::Bf16 } | Op::Constant { dtype: DType::Bf16, .. });
        if !rounds {
            widen_attribute(&mut op);
        }
        let made = out.push_node(
            op,
            operands,
            if rounds { node.tys.clone() } else { tys.clone() },
            node.name.clone(),
        );
        let new = &mut out.nodes[made.0 as usize];
        (new.region, new.origins) = (node.region, node.origins.clone());
        let mut results = vec![];
        for (r, ty) in node.tys.iter().enumerate() {
            let value = Value { node: made, result: r as u32 };
            let moved = node.op.info().class == Class::View;
            results.push(if ty.dtype == DType::Bf16 && !moved {
                let narrow = if rounds {
                    value
                } else {
                    let cast = Op::Cast { dtype: DType::Bf16 };
                    out.push_node(cast, vec![value], vec![ty.clone()], None).into()
                };
                let cast = Op::Cast { dtype: DType::F32 };
                out.push_node(cast, vec![narrow], vec![tys[r].clone()], None).into()
            } else {
                value
            });
        }
        at.push(results);
    }
    let output = |o: &Output| Output {
        value: at[o.value.node.0 as usize][o.value.result as usize],
        ..o.clone()
    };
    out.outputs = f.outputs.iter().map(output).collect();
    out
}

/// Widens the attribute of an op that says what its result is.
fn widen_attribute(op: &mut Op) {
    match op {
        Op::Cast { dtype }
        | Op::Constant { dtype, .. }
        | Op::Contract { dtype, .. }
        | Op::GroupedOuter { dtype, .. }
        | Op::CausalConv1dWeightGrad { dtype, .. } => *dtype = wide(*dtype),
        _ => {}
    }
}

fn tolerances(f: &Function) -> Vec<f64> {
    // Whether a value depends on one that is rounded to bf16 on its way from the inputs.
    let mut rounded: Vec<bool> = vec![];
    for node in &f.nodes {
        let inherited = node.operands.iter().any(|v| rounded[v.node.0 as usize]);
        // Inputs and constants are bf16 numbers already, and moving them rounds nothing.
        let moves = matches!(node.op, Op::Input { .. })
            || matches!(node.op.info().class, Class::View | Class::Source);
        let rounds = node.tys.iter().any(|t| t.dtype == DType::Bf16) && !moves;
        rounded.push(inherited || rounds);
    }
    f.output_values()
        .map(|v| match f.ty(v).dtype {
            DType::F32 if !rounded[v.node.0 as usize] => EXACT,
            DType::Bf16 | DType::F32 => ROUNDED,
            DType::I32 | DType::Bool => 0.0,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vlmc_ir::text::parse;

    fn reference(body: &str) -> Reference {
        let text = format!("program \"p\"\nsymbol T\n\nfunc @f cluster \"c\" {{\n{body}}}\n");
        let program =
            parse::program(&text).unwrap_or_else(|e| panic!("{}", parse::render(&text, &e)));
        Reference::new(&program, "f").expect("a reference")
    }

    fn run(r: &Reference, values: &[f64]) -> Vec<f64> {
        let x = Tensor::floats(DType::Bf16, vec![values.len()], values.to_vec()).expect("a tensor");
        let out = r.run(&Sizes::default(), &[x]).expect("runs");
        out.iter().flat_map(Tensor::to_f64).collect()
    }

    /// 1 + 2^-8: no bf16 number; the nearest are 1 and 1 + 2^-7.
    const BETWEEN: f64 = 1.0 + 1.0 / 256.0;

    #[test]
    fn every_value_of_bf16_is_rounded() {
        let r = reference(
            "  input %x : bf16[T]\n  %h = constant {value = 0.00390625, dtype = bf16, shape = [T]} : bf16[T]\n  \
             %s = add %x, %h : bf16[T]\n  %w = cast %s {dtype = f32} : f32[T]\n  return %w\n",
        );
        assert_eq!(run(&r, &[1.0]), [1.0]);
        assert_eq!(r.tolerances, [ROUNDED]);
    }

    #[test]
    fn casts_and_stores_are_rounded() {
        let cast = reference(
            "  input %x : bf16[T]\n  %f = cast %x {dtype = f32} : f32[T]\n  \
             %h = constant {value = 0.00390625, dtype = f32, shape = [T]} : f32[T]\n  \
             %s = add %f, %h : f32[T]\n  %n = cast %s {dtype = bf16} : bf16[T]\n  \
             %w = cast %n {dtype = f32} : f32[T]\n  return %w\n  return %s\n",
        );
        assert_eq!(run(&cast, &[1.0]), [1.0, BETWEEN]);
        assert_eq!(cast.tolerances, [ROUNDED, EXACT]);
        let stored = reference(
            "  input %x : bf16[T]\n  %h = constant {value = 0.00390625, dtype = bf16, shape = [T]} : bf16[T]\n  \
             %s = add %x, %h : bf16[T]\n  %w = cast %s {dtype = f32} : f32[T]\n  return %w\n  return %s\n",
        );
        assert_eq!(run(&stored, &[1.0]), [1.0, 1.0]);
    }

    #[test]
    fn tolerances_follow_the_types() {
        let r = reference(
            "  input %x : bf16[T]\n  %r = repeat %x {axis = 0, times = 2} : bf16[2*T]\n  \
             %w = cast %r {dtype = f32} : f32[2*T]\n  %e = exp %w : f32[2*T]\n  \
             %z = constant {value = 0.0, dtype = f32, shape = [2*T]} : f32[2*T]\n  \
             %c = compare %e, %z {kind = gt} : bool[2*T]\n  \
             return %e\n  return %r\n  return %c\n",
        );
        assert_eq!(r.tolerances, [EXACT, ROUNDED, 0.0]);
    }

    #[test]
    fn no_cluster_is_refused() {
        let text = "program \"p\"\n\nfunc @f {\n  input %x : f32[2]\n  return %x\n}\n\n\
                    func @main {\n  input %x : f32[2]\n  \
                    %y = call %x {callee = \"f\", scope = \"\", path = \"\", layer = none} : f32[2]\n  \
                    return %y\n}\n";
        let program = parse::program(text).expect("parses");
        let error = |name: &str| match Reference::new(&program, name) {
            Ok(_) => panic!("accepted"),
            Err(e) => e.to_string(),
        };
        assert_eq!(error("g"), "the program has no function @g");
        assert!(error("main").contains("@f"), "{}", error("main"));
        assert!(Reference::new(&program, "f").is_ok());
    }
}
