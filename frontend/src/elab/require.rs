//! Constraints of a configuration: checked with its numbers, reported with where they come from.

use super::Elab;
use super::config::Setter;
use super::value::Val;
use crate::diag::{Code, Diag};
use crate::syntax::ast::{BinaryOp, Expr, ExprKind};
use indexmap::IndexMap;

impl Elab<'_> {
    pub(super) fn check_requires(
        &mut self,
        v: &Val,
        path: &str,
        setters: &IndexMap<String, Setter>,
    ) {
        let Val::Config(d, fields) = v else { return };
        for r in &d.ast.requires {
            let mut frame = self.config_frame(d.file, fields);
            if self.condition(&mut frame, r) == Some(false) {
                self.violated(r, fields, path, setters);
            }
        }
        for (name, inner) in fields.iter() {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            self.check_requires(inner, &below, setters);
        }
    }

    /// Reports a constraint that does not hold, with the values of the fields it names.
    pub(super) fn violated(
        &mut self,
        r: &Expr,
        fields: &IndexMap<String, Val>,
        path: &str,
        setters: &IndexMap<String, Setter>,
    ) {
        let mut names = vec![];
        paths_of(r, &mut names);
        let text = self.source_text(r.span);
        let mut diag = Diag::error(Code::ConstraintViolated, format!("`{text}` does not hold"))
            .label(r.span, "required here");
        let mut values = vec![];
        for name in &names {
            let mut at = fields.get(&name[0]);
            for part in &name[1..] {
                at = match at {
                    Some(Val::Config(_, f)) => f.get(part),
                    _ => None,
                };
            }
            let Some(value) = at.map(show) else { continue };
            values.push((name.join("."), value.clone()));
            let full =
                if path.is_empty() { name.join(".") } else { format!("{path}.{}", name.join(".")) };
            match setters.get(&full) {
                Some(Setter::Spec(s)) => diag = diag.secondary(*s, format!("{full} = {value}")),
                Some(Setter::Flag(line)) => {
                    diag = diag.secondary_flag(
                        line.clone(),
                        0..line.len(),
                        format!("{full} = {value}"),
                    );
                }
                None => {}
            }
        }
        let list: Vec<_> = values.iter().map(|(n, v)| format!("{n} = {v}")).collect();
        diag = diag.note(list.join(", "));
        let set = |n: &str| {
            let full = if path.is_empty() { n.to_string() } else { format!("{path}.{n}") };
            setters.contains_key(&full)
        };
        self.diags.push(diag.help(remedy(r, &values, &set)));
    }
}

/// Proposes values for `a % b == 0`, of the one of the two that was set; otherwise says which
/// fields matter.
fn remedy(r: &Expr, values: &[(String, String)], set: &dyn Fn(&str) -> bool) -> String {
    if let ExprKind::Binary(BinaryOp::Eq, a, zero, _) = &r.kind
        && matches!(zero.kind, ExprKind::Int(0))
        && let ExprKind::Binary(BinaryOp::Rem, ..) = &a.kind
        && let [(name, a), rest @ ..] = values
        && let (Ok(a), Some(b)) = (
            a.parse::<i64>(),
            rest.first().and_then(|(_, b)| b.parse::<i64>().ok()).filter(|b| *b > 0),
        )
    {
        if let [(divisor, _)] = rest
            && set(divisor)
            && !set(name)
            && (1..=1 << 20).contains(&a)
        {
            let below = (1..b.min(a)).rev().find(|d| a % d == 0);
            let above = (b + 1..=a).find(|d| a % d == 0);
            let both: Vec<String> = below.into_iter().chain(above).map(|d| d.to_string()).collect();
            return format!("`{divisor}` could be {}", both.join(" or "));
        }
        let below = a / b * b;
        return match below {
            0 => format!("`{name}` could be {b}"),
            _ => format!("`{name}` could be {below} or {}", below + b),
        };
    }
    let names: Vec<_> = values.iter().map(|(n, _)| format!("`{n}`")).collect();
    format!("change {}", names.join(" or "))
}

fn show(v: &Val) -> String {
    match v {
        Val::Float(Some(f)) => format!("{f:?}"),
        Val::Bool(Some(b)) => b.to_string(),
        Val::Str(Some(s)) => format!("\"{s}\""),
        Val::Enum(d, Some(i)) => d.ast.values[*i].0.name.clone(),
        Val::List(l) => match &l.items {
            Some(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
            None => l.text.clone(),
        },
        other => other.key(),
    }
}

/// Every `a.b.c` in an expression, once, in order.
fn paths_of(e: &Expr, out: &mut Vec<Vec<String>>) {
    fn path(e: &Expr) -> Option<Vec<String>> {
        match &e.kind {
            ExprKind::Name(n) => Some(vec![n.clone()]),
            ExprKind::Field(inner, n) => {
                let mut p = path(inner)?;
                p.push(n.name.clone());
                Some(p)
            }
            _ => None,
        }
    }
    if let Some(p) = path(e) {
        if !out.contains(&p) {
            out.push(p);
        }
        return;
    }
    match &e.kind {
        ExprKind::Unary(_, a) => paths_of(a, out),
        ExprKind::Binary(_, a, b, _) => {
            paths_of(a, out);
            paths_of(b, out);
        }
        ExprKind::Call(_, args) => args.iter().for_each(|a| paths_of(&a.value, out)),
        ExprKind::Tuple(items) | ExprKind::List(items) => {
            items.iter().for_each(|i| paths_of(i, out));
        }
        _ => {}
    }
}
