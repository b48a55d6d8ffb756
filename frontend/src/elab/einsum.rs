//! `einsum`: sums of products written with named axes.

use super::Elab;
use super::value::Val;
use crate::diag::{Code, Diag};
use crate::syntax::ast::Span;
use vlmc_ir::ops::Op;
use vlmc_ir::ty::DType;

/// Axis names of one operand or of the result.
fn names(text: &str) -> Vec<String> {
    text.split_whitespace().map(String::from).collect()
}

impl Elab<'_> {
    pub(super) fn einsum(
        &mut self,
        pattern: (Val, Span),
        a: Option<(Val, Span)>,
        b: Option<(Val, Span)>,
        wide: bool,
        span: Span,
    ) -> Val {
        let Val::Str(Some(text)) = &pattern.0 else {
            return self.wrong_kind(pattern.1, "a pattern", &pattern.0);
        };
        let at = pattern.1;
        let parts: Vec<&str> = text.split("->").collect();
        let [inputs, output] = parts.as_slice() else {
            return self.bad_pattern(at, "a pattern has one `->`");
        };
        let inputs: Vec<Vec<String>> = inputs.split(',').map(names).collect();
        let output = names(output);
        let given: Vec<_> = [a, b].into_iter().flatten().collect();
        if inputs.len() != given.len() {
            let have = super::plural(inputs.len(), "operand");
            let message = format!("{have} in the pattern, {} given", given.len());
            return self.bad_pattern(at, &message);
        }
        let mut axes = vec![];
        for (names, (v, s)) in inputs.iter().zip(&given) {
            let Val::Tensor(t) = v else { return self.wrong_kind(*s, "a tensor", v) };
            let ty = self.ty(*t);
            let rests = names.iter().filter(|n| *n == "..").count();
            let fixed = names.len() - rests;
            if rests > 1 || ty.rank() < fixed || (rests == 0 && ty.rank() != fixed) {
                self.diags.push(
                    Diag::error(
                        Code::EinsumPattern,
                        format!("`{}` does not fit `{}`", names.join(" "), self.ty_text(&ty)),
                    )
                    .label(*s, super::plural(ty.rank(), "dim"))
                    .secondary(at, super::plural(fixed, "name"))
                    .help("name each axis; `..` stands for leading ones"),
                );
                return Val::Unknown;
            }
            axes.push(expand(names, ty.rank() - fixed));
        }
        let extra = axes.iter().flatten().filter(|n| n.starts_with("..")).collect::<Vec<_>>();
        let most = extra.iter().filter_map(|n| n[2..].parse::<usize>().ok()).max();
        let output = expand(&output, most.map_or(0, |m| m + 1));
        if let Some(n) = output.iter().find(|n| !axes.iter().flatten().any(|a| a == *n)) {
            return self.bad_pattern(at, &format!("`{n}` is in no operand"));
        }
        let repeats = |l: &[String]| l.iter().enumerate().any(|(i, n)| l[..i].contains(n));
        if axes.iter().any(|l| repeats(l)) || repeats(&output) {
            return self.bad_pattern(at, "a name stands twice in one operand");
        }
        match (axes.as_slice(), given.as_slice()) {
            ([x], [(v, s)]) => {
                let summed = x.iter().enumerate().filter(|(_, n)| !output.contains(n));
                let dims: Vec<u32> = summed.map(|(i, _)| i as u32).collect();
                let kept: Vec<String> = x.iter().filter(|n| output.contains(n)).cloned().collect();
                let sum = if dims.is_empty() {
                    v.clone()
                } else {
                    self.op_call(Op::ReduceSum { axes: dims }, &[(v.clone(), *s)], span)
                };
                self.permute(sum, &kept, &output, span)
            }
            ([x, y], [a, b]) => {
                let position = |l: &[String], n: &String| l.iter().position(|m| m == n);
                let (mut a_batch, mut b_batch, mut a_contract, mut b_contract) =
                    (vec![], vec![], vec![], vec![]);
                let mut order = vec![];
                for (i, n) in x.iter().enumerate() {
                    match position(y, n) {
                        Some(j) if output.contains(n) => {
                            a_batch.push(i as u32);
                            b_batch.push(j as u32);
                            order.push(n.clone());
                        }
                        Some(j) => {
                            a_contract.push(i as u32);
                            b_contract.push(j as u32);
                        }
                        None => {}
                    }
                }
                let alone = |l: &[String], m: &[String]| {
                    l.iter().find(|n| !m.contains(n) && !output.contains(n)).cloned()
                };
                if let Some(n) = alone(x, y).or(alone(y, x)) {
                    return self.bad_pattern(
                        at,
                        &format!("`{n}` is in one operand and not in the result"),
                    );
                }
                order.extend(x.iter().filter(|n| position(y, n).is_none()).cloned());
                order.extend(y.iter().filter(|n| position(x, n).is_none()).cloned());
                let dtype = match (&a.0, &b.0) {
                    (Val::Tensor(s), Val::Tensor(t)) => {
                        let (s, t) = (self.ty(*s).dtype, self.ty(*t).dtype);
                        if s == t && !wide { s } else { DType::F32 }
                    }
                    _ => return Val::Unknown,
                };
                let op = Op::Contract { a_batch, b_batch, a_contract, b_contract, dtype };
                let v = self.op_call(op, &[a.clone(), b.clone()], span);
                self.permute(v, &order, &output, span)
            }
            _ => self.bad_pattern(at, "one or two operands"),
        }
    }

    fn permute(&mut self, v: Val, have: &[String], want: &[String], span: Span) -> Val {
        if have == want || v.is_unknown() {
            return v;
        }
        let permutation =
            want.iter().filter_map(|n| have.iter().position(|m| m == n)).map(|i| i as u32);
        let op = Op::Transpose { permutation: permutation.collect() };
        self.op_call(op, &[(v, span)], span)
    }

    fn bad_pattern(&mut self, at: Span, message: &str) -> Val {
        self.diags.push(
            Diag::error(Code::EinsumPattern, message.to_string())
                .label(at, "this pattern")
                .help("write it as in `einsum(\"t d, o d -> t o\", x, w)`"),
        );
        Val::Unknown
    }
}

/// `..` replaced by names of `count` axes.
fn expand(names: &[String], count: usize) -> Vec<String> {
    let mut out = vec![];
    for n in names {
        if n == ".." {
            out.extend((0..count).map(|i| format!("..{i}")));
        } else {
            out.push(n.clone());
        }
    }
    out
}
