//! The MLIR half: context, diagnostics, reading, passes.

use std::cell::RefCell;
use std::ffi::CString;
use std::rc::Rc;

use melior::diagnostic::{Diagnostic, DiagnosticSeverity};
use melior::dialect::DialectRegistry;
use melior::ir::Module;
use melior::ir::operation::Operation;
use melior::pass::PassManager;
use melior::{Context, StringRef, utility};

use super::lines::{Place, place};
use crate::error::{Error, Stage};

/// A context with every dialect and pass, and the diagnostics that it gave.
pub(super) struct Mlir {
    context: Context,
    said: Rc<RefCell<Vec<String>>>,
}

impl Mlir {
    pub(super) fn new() -> Mlir {
        let registry = DialectRegistry::new();
        utility::register_all_dialects(&registry);
        utility::register_all_passes();
        // One thread: kernels are small, and callers lower several at once if they like.
        let context = Context::new_with_registry(&registry, false);
        context.load_all_available_dialects();
        utility::register_all_llvm_translations(&context);
        let said = Rc::new(RefCell::new(Vec::new()));
        let sink = Rc::clone(&said);
        context.attach_diagnostic_handler(move |diagnostic| {
            if matches!(diagnostic.severity(), DiagnosticSeverity::Error) {
                sink.borrow_mut().push(render(&diagnostic));
            }
            true
        });
        Mlir { context, said }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Reads and verifies a text that is one builtin module. Places in it are told as
    /// `name:line:column`.
    pub(super) fn parse(&self, text: &str, name: &str) -> Result<Module<'_>, Error> {
        self.forget();
        let (Ok(source), Ok(origin)) = (CString::new(text), CString::new(name)) else {
            return Err(Error::new(name, Stage::Parse, "the text holds a NUL byte"));
        };
        // SAFETY: the context is live; both strings outlive the call, which copies what it keeps.
        // The operation that it returns, if not null, is ours alone.
        let operation = unsafe {
            Operation::from_option_raw(mlir_sys::mlirOperationCreateParse(
                self.context.to_raw(),
                StringRef::from_c_str(&source).to_raw(),
                StringRef::from_c_str(&origin).to_raw(),
            ))
        };
        let Some(operation) = operation else {
            return Err(self.error(name, Stage::Parse, "the text is no MLIR"));
        };
        Module::from_operation(operation)
            .ok_or_else(|| Error::new(name, Stage::Parse, "the text is not one `module { .. }`"))
    }

    pub(super) fn run(
        &self,
        module: &mut Module<'_>,
        pipeline: &str,
        name: &str,
    ) -> Result<(), Error> {
        self.forget();
        let passes = PassManager::new(&self.context);
        utility::parse_pass_pipeline(passes.as_operation_pass_manager(), pipeline)
            .map_err(|error| Error::new(name, Stage::Passes, error.to_string()))?;
        passes.run(module).map_err(|error| self.error(name, Stage::Passes, &error.to_string()))
    }

    /// Begins a step: what was said before is not of it.
    pub(super) fn forget(&self) {
        self.said.borrow_mut().clear();
    }

    /// What the context said since the last step began, or `otherwise` if it said nothing.
    pub(super) fn error(&self, name: &str, stage: Stage, otherwise: &str) -> Error {
        let said = std::mem::take(&mut *self.said.borrow_mut());
        let detail = if said.is_empty() { otherwise.to_owned() } else { said.join("\n") };
        Error::new(name, stage, detail)
    }
}

/// `place: message`, then its notes, without the one that prints the operation, which may be all of
/// a kernel.
fn render(diagnostic: &Diagnostic<'_>) -> String {
    let mut text = match place(diagnostic.location(), &|_| true) {
        Some(Place { file, line, column }) => format!("{file}:{line}:{column}: {diagnostic}"),
        None => diagnostic.to_string(),
    };
    for note in (0..diagnostic.note_count()).filter_map(|i| diagnostic.note(i).ok()) {
        let note = note.to_string();
        if !note.starts_with("see current operation") {
            text.push_str("\n  note: ");
            text.push_str(&note);
        }
    }
    text
}

/// A string of MLIR's; an empty one is no string to melior.
pub(super) fn string(text: StringRef<'_>) -> String {
    if text.to_raw().length == 0 {
        return String::new();
    }
    text.as_str().unwrap_or_default().to_owned()
}
