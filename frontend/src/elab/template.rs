//! Functions of parts that become functions of the program: built once for each kind of part and of
//! arguments, and called from then on.

use super::call::{Args, Callee};
use super::module::Place;
use super::value::{Instance, Sequence, Val};
use super::{Building, Elab, Finished};
use crate::syntax::ast::{self, Span};
use std::rc::Rc;
use vlmc_ir::graph::{NodeId, Value};
use vlmc_ir::ops::Op;
use vlmc_ir::ty::Ty;

/// Marks outputs that carry what was emitted.
const EMIT: &str = "emit ";

impl Elab<'_> {
    /// Calls a function of a part that is a template: builds it when it is new.
    pub(super) fn call_template(
        &mut self,
        i: &Rc<Instance>,
        f: &ast::Fn,
        args: &Args,
        span: Span,
    ) -> Val {
        let callee = Callee { file: i.module.file, function: f, instance: Some(i.clone()) };
        // Checked here, so that messages are about the call.
        let before = self.diags.len();
        let Some(frame) = self.enter(&callee, args, span) else { return Val::Unknown };
        if self.diags.len() > before {
            return Val::Unknown;
        }
        let bound: Vec<(String, Val)> = f
            .args
            .iter()
            .filter_map(|a| Some((a.name.name.clone(), frame.get(&a.name.name)?.val.clone())))
            .collect();
        let mut flat = vec![];
        let mut key = format!("{}.{}(", i.module.ast.name.name, f.name.name);
        for a in &i.module.ast.args {
            key += &format!("{};", i.env.get(&a.name.name).map_or_else(String::new, Val::key));
        }
        for (name, v) in &bound {
            let start = flat.len();
            flatten(v, &mut flat);
            let tys: Vec<String> = flat[start..].iter().map(|t| self.ty(*t).to_string()).collect();
            let scalar = if tys.is_empty() { v.key() } else { String::new() };
            key += &format!("{name}:{scalar}{};", tys.join(","));
        }
        if !self.templates.contains_key(&key) {
            let Some(done) = self.build_template(i, f, &bound, span) else { return Val::Unknown };
            self.templates.insert(key.clone(), done);
        }
        let Some(done) = self.templates.get(&key) else { return Val::Unknown };
        let (callee, form) = (done.function.clone(), done.result.clone());
        let Some(function) = self.program.function(&callee) else { return Val::Unknown };
        let tys: Vec<Ty> = function.outputs.iter().map(|o| function.ty(o.value).clone()).collect();
        let emitted: Vec<Option<String>> = function
            .outputs
            .iter()
            .map(|o| Some(o.name.as_deref()?.strip_prefix(EMIT)?.to_string()))
            .collect();
        let template = i.template.clone().unwrap_or_else(|| super::value::Template {
            scope: String::new(),
            path: String::new(),
            layer: None,
        });
        let op =
            Op::Call { callee, scope: template.scope, path: template.path, layer: template.layer };
        let origin = self.origin(span);
        let at = self.at();
        let region = at.region;
        let id = at.f.push_node(op, flat, tys, None);
        if let Some(node) = at.f.nodes.last_mut() {
            node.region = region;
            node.origins.push(origin);
        }
        for (result, name) in emitted.iter().enumerate() {
            if let Some(name) = name {
                self.add_emitted(name, Value { node: id, result: result as u32 }, span);
            }
        }
        let mut next = 0;
        rebuild(&form, id, &mut next)
    }

    pub(super) fn build_template(
        &mut self,
        i: &Rc<Instance>,
        f: &ast::Fn,
        bound: &[(String, Val)],
        span: Span,
    ) -> Option<Finished> {
        let function = self.template_name(i, f);
        let tys: Vec<Vec<Ty>> = bound
            .iter()
            .map(|(_, v)| {
                let mut flat = vec![];
                flatten(v, &mut flat);
                flat.into_iter().map(|t| self.ty(t)).collect()
            })
            .collect();
        let mut building = Building::default();
        building.f.name.clone_from(&function);
        self.building.push(building);
        let place = Place {
            prefix: String::new(),
            path: String::new(),
            template: None,
            parts_are_templates: false,
            span: i.span,
        };
        let args = i
            .module
            .ast
            .args
            .iter()
            .filter_map(|a| Some((a.name.name.clone(), i.env.get(&a.name.name)?.clone())));
        let inner = self.instantiate(&i.module, args.collect(), place);
        let mut list = vec![];
        for ((name, v), tys) in bound.iter().zip(tys) {
            let val = match v {
                Val::Tensor(_) => {
                    let ty = tys.into_iter().next()?;
                    Val::Tensor(self.at().f.add_input(name, ty, None))
                }
                Val::Sequence(_) => self.sequence_inputs(name, [None, None, None]),
                scalar => scalar.clone(),
            };
            list.push(Self::arg(name, val, span));
        }
        let callee = Callee { file: i.module.file, function: f, instance: Some(inner) };
        let result = self.call_fn(&callee, &Args { list }, span);
        let mut flat = vec![];
        flatten(&result, &mut flat);
        for v in flat {
            self.at().f.add_output(None, v);
        }
        self.emit_outputs();
        let built = self.building.pop()?.f;
        if result.is_unknown() {
            return None;
        }
        self.program.functions.push(built);
        Some(Finished { function, result })
    }

    /// What was emitted becomes extra results.
    pub(super) fn emit_outputs(&mut self) {
        let at = self.at();
        for (name, v) in std::mem::take(&mut at.emitted) {
            at.f.add_output(Some(&format!("{EMIT}{name}")), v);
        }
    }

    /// `Module`, with the enumeration values among its arguments and the function's name unless it
    /// is `forward`; numbered when taken.
    pub(super) fn template_name(&self, i: &Rc<Instance>, f: &ast::Fn) -> String {
        let mut name = i.module.ast.name.name.clone();
        for a in &i.module.ast.args {
            if let Some(Val::Enum(d, Some(v))) = i.env.get(&a.name.name) {
                name += &format!(".{}", d.ast.values[*v].0.name);
            }
        }
        if f.name.name != "forward" {
            name += &format!(".{}", f.name.name);
        }
        let taken = |n: &str| {
            self.program.functions.iter().any(|g| g.name == n)
                || self.building.iter().any(|b| b.f.name == n)
        };
        if !taken(&name) {
            return name;
        }
        (2..).map(|k| format!("{name}.{k}")).find(|n| !taken(n)).unwrap_or(name)
    }
}

/// The tensors in a value, in order.
pub(super) fn flatten(v: &Val, out: &mut Vec<Value>) {
    match v {
        Val::Tensor(t) => out.push(*t),
        Val::Sequence(s) => out.extend([s.cu_seqlens, s.cu_seqlens_padded, s.positions]),
        Val::Loss(a, b) => out.extend([*a, *b]),
        Val::Tuple(items) => items.iter().for_each(|i| flatten(i, out)),
        _ => {}
    }
}

/// A value of the same form whose tensors are the results of a call.
pub(super) fn rebuild(form: &Val, node: NodeId, next: &mut u32) -> Val {
    let mut take = || {
        *next += 1;
        Value { node, result: *next - 1 }
    };
    match form {
        Val::Tensor(_) => Val::Tensor(take()),
        Val::Loss(..) => {
            let sum = take();
            Val::Loss(sum, take())
        }
        Val::Sequence(_) => {
            let (a, b, c) = (take(), take(), take());
            Val::Sequence(Sequence { cu_seqlens: a, cu_seqlens_padded: b, positions: c })
        }
        Val::Tuple(items) => Val::Tuple(items.iter().map(|i| rebuild(i, node, next)).collect()),
        other => other.clone(),
    }
}
