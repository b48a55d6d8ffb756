//! Checkpoint names: two declarations must not read one tensor unawares.

use super::Elab;
use super::library::Decl;
use crate::diag::{Code, Diag};
use crate::syntax::ast::{self, Member, Span};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use vlmc_ir::graph::{Program, Value, join_name};
use vlmc_ir::ops::Op;

/// A checkpoint name that two paths in the spec have.
struct Shared {
    key: String,
    paths: [String; 2],
}

impl Elab<'_> {
    /// The parameter `v` of the function being built is found again under its checkpoint name; `path`
    /// must be its own. Without a variant both sides of a choice are looked at, which may share names.
    pub(super) fn same_param(&mut self, v: Value, path: &str, key: &str, span: Span) {
        let f = &self.at().f;
        let Op::Param { index } = f.node(v.node).op else { return };
        let Some(first) = f.params.get(index as usize).map(|p| p.name.to_string()) else { return };
        if !self.symbolic && first != path {
            let paths = [first, path.to_string()];
            let diag = told(&Shared { key: key.to_string(), paths });
            self.diags.push(diag.label(span, "would be that of another declaration, too"));
        }
    }

    /// Every checkpoint name of the program belongs to one path in the spec.
    pub(super) fn one_name_each(&mut self, model: Option<&Arc<Decl<ast::Module>>>) {
        let Some(shared) = shared_name(&self.program) else { return };
        let member = |path: &str| {
            let first = path.split('.').next().unwrap_or_default();
            model?.ast.members.iter().find_map(|m| match m {
                Member::Part(p) if p.name.name == first => Some(p.name.span),
                Member::Param(p) if p.name.name == first => Some(p.name.span),
                _ => None,
            })
        };
        let mut diag = told(&shared);
        let [first, second] = &shared.paths;
        if let Some(span) = member(second) {
            diag = diag.label(span, format!("has `{second}`"));
            if let Some(other) = member(first).filter(|other| *other != span) {
                diag = diag.secondary(other, format!("has `{first}`"));
            }
        }
        self.diags.push(diag);
    }
}

fn told(shared: &Shared) -> Diag {
    let [first, second] = &shared.paths;
    let message = format!("`{first}` and `{second}` have one checkpoint name, `{}`", shared.key);
    Diag::error(Code::Duplicate, message).help(
        "give each its own name with `as`, in a stack with `{i}`; to share one tensor, use the one \
         declaration twice",
    )
}

/// The first name that two paths have, in the order of use.
fn shared_name(program: &Program) -> Option<Shared> {
    let functions: FxHashMap<&str, usize> =
        program.functions.iter().enumerate().map(|(i, f)| (&*f.name, i)).collect();
    let mut seen: FxHashMap<String, String> = FxHashMap::default();
    let main = program.functions.len().checked_sub(1)?;
    let mut open = vec![(main, String::new(), String::new())];
    while let Some((at, path, scope)) = open.pop() {
        let f = &program.functions[at];
        for p in &f.params {
            let (path, key) = (join_name(&path, &p.name), join_name(&scope, &p.key));
            let first = seen.entry(key.clone()).or_insert_with(|| path.clone());
            if *first != path {
                return Some(Shared { key, paths: [first.clone(), path] });
            }
        }
        for node in f.nodes.iter().rev() {
            let Op::Call { callee, scope: inner, path: below, .. } = &node.op else { continue };
            // Callees come before callers, so this ends.
            if let Some(target) = functions.get(&**callee).filter(|t| **t < at) {
                open.push((*target, join_name(&path, below), join_name(&scope, inner)));
            }
        }
    }
    None
}
