//! Loads a spec and what it imports, and knows what each name of a file means.

use crate::diag::{Code, Diag, Diags, nearest};
use crate::source::Sources;
use crate::syntax::ast::{self, FileId, Ident, Item, Span};
use crate::syntax::parse;
use indexmap::IndexMap;
use std::sync::Arc;

/// The standard library's text.
const STD: &str = include_str!("../../std/std.vlm");

/// Names of the standard library's functions.
pub fn std_functions() -> Vec<&'static str> {
    let name = |line: &'static str| {
        let rest = line.strip_prefix("fn ")?;
        rest.find(['[', '(']).map(|end| &rest[..end])
    };
    STD.lines().filter_map(name).collect()
}

/// The doc comment and the text of a function of the standard library.
pub fn std_function(name: &str) -> Option<(String, String)> {
    let mut sources = Sources::new();
    let file = sources.add("std.vlm", STD);
    let parsed = parse(file, STD).file;
    parsed.items.iter().find_map(|item| match item {
        Item::Fn(f) if f.name.name == name => {
            // From the word `fn`, which stands before the name on its line.
            let start = STD[..f.name.span.start as usize].rfind("fn ")? as u32;
            let text = sources.snippet(Span { file, start, end: f.body.span.end });
            Some((f.doc.clone(), text.to_string()))
        }
        _ => None,
    })
}

/// Where files come from.
pub trait Reader {
    /// The bytes of the module called `name` beside the root file, and the name to show for it;
    /// `None` when there is none.
    fn module(&self, name: &str) -> Option<(String, Vec<u8>)>;

    /// Names that `module` knows, for suggestions.
    fn modules(&self) -> Vec<String>;
}

/// A reader of files that have no siblings.
pub struct NoModules;

impl Reader for NoModules {
    fn module(&self, _: &str) -> Option<(String, Vec<u8>)> {
        None
    }

    fn modules(&self) -> Vec<String> {
        vec![]
    }
}

/// A declaration and the file it stands in.
#[derive(Debug)]
pub struct Decl<T> {
    /// The file.
    pub file: FileId,
    /// The declaration.
    pub ast: T,
}

/// What a name of a file means.
#[derive(Clone, Debug)]
pub enum Def {
    /// A function.
    Fn(Arc<Decl<ast::Fn>>),
    /// A module or model.
    Module(Arc<Decl<ast::Module>>),
    /// A configuration.
    Config(Arc<Decl<ast::Config>>),
    /// An enumeration.
    Enum(Arc<Decl<ast::Enum>>),
    /// A run-time size.
    Symbol(Ident),
    /// An import that failed, and has been reported.
    Missing(Ident),
}

impl Def {
    /// Where its name stands.
    pub fn span(&self) -> Span {
        match self {
            Def::Fn(d) => d.ast.name.span,
            Def::Module(d) => d.ast.name.span,
            Def::Config(d) => d.ast.name.span,
            Def::Enum(d) => d.ast.name.span,
            Def::Symbol(i) | Def::Missing(i) => i.span,
        }
    }

    /// Its kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Def::Fn(_) => "function",
            Def::Module(_) => "module",
            Def::Config(_) => "configuration",
            Def::Enum(_) => "enumeration",
            Def::Symbol(_) => "symbol",
            Def::Missing(_) => "missing import",
        }
    }
}

/// One file's names and declarations.
#[derive(Default, Debug)]
pub struct FileScope {
    /// The module name it was imported by; empty for the root.
    pub module: String,
    /// Declared and imported names, in order.
    pub names: IndexMap<String, Def>,
    /// Names declared here.
    pub own: Vec<String>,
    /// Variants declared here.
    pub variants: Vec<Arc<Decl<ast::Variant>>>,
    /// Checkpoint imports declared here.
    pub imports: Vec<Arc<Decl<ast::Import>>>,
}

/// A root file with everything it imports.
#[derive(Default, Debug)]
pub struct Library {
    /// Texts.
    pub sources: Sources,
    /// Indexed by [`FileId`].
    pub files: Vec<FileScope>,
    /// The file that was asked for.
    pub root: Option<FileId>,
}

impl Library {
    /// Loads the spec of this name and text. Files that failed to parse are loaded as far as they
    /// go; the caller stops on errors before it uses them.
    pub fn load(name: &str, bytes: Vec<u8>, reader: &dyn Reader) -> (Library, Diags) {
        let mut loader =
            Loader { lib: Library::default(), diags: Diags::new(), reader, open: vec![] };
        loader.lib.root = loader.file("", name.to_string(), bytes);
        (loader.lib, loader.diags)
    }

    /// The standard library alone, as a root.
    pub fn standard(&self) -> Library {
        Library::load("std.vlm", STD.as_bytes().to_vec(), &NoModules).0
    }

    /// The scope of a file.
    pub fn scope(&self, file: FileId) -> Option<&FileScope> {
        self.files.get(file.0 as usize)
    }

    /// What a name means in a file.
    pub fn lookup(&self, file: FileId, name: &str) -> Option<&Def> {
        self.scope(file)?.names.get(name)
    }

    /// The model of the root file: the one it declares, or else the last it imports.
    pub fn model(&self) -> Option<Arc<Decl<ast::Module>>> {
        let scope = self.scope(self.root?)?;
        let is_model = |d: &Def| match d {
            Def::Module(m) if m.ast.is_model => Some(m.clone()),
            _ => None,
        };
        let own = scope.own.iter().filter_map(|n| is_model(scope.names.get(n)?)).next_back();
        own.or_else(|| scope.names.values().filter_map(is_model).next_back())
    }

    /// Every variant of a model, in the order of the files and of their text.
    pub fn variants(&self, model: &str) -> Vec<Arc<Decl<ast::Variant>>> {
        let all = self.files.iter().flat_map(|f| &f.variants);
        all.filter(|v| v.ast.model.name == model).cloned().collect()
    }
}

struct Loader<'a> {
    lib: Library,
    diags: Diags,
    reader: &'a dyn Reader,
    /// Modules being loaded, for cycles.
    open: Vec<String>,
}

impl Loader<'_> {
    fn file(&mut self, module: &str, name: String, bytes: Vec<u8>) -> Option<FileId> {
        let id = match self.lib.sources.add_bytes(name, bytes) {
            Ok(id) => id,
            Err(diag) => {
                self.diags.push(diag);
                // The sources hold it, so the scopes must have a place for it.
                self.lib.files.push(FileScope { module: module.into(), ..FileScope::default() });
                return None;
            }
        };
        self.lib.files.push(FileScope { module: module.into(), ..FileScope::default() });
        let parsed = parse(id, self.lib.sources.text(id));
        self.diags.append(parsed.diags);
        self.open.push(module.to_string());
        let file = parsed.file;
        for item in &file.items {
            if let Item::Use(u) = item {
                self.import(id, u);
            }
        }
        for item in file.items {
            self.declare(id, item);
        }
        self.open.pop();
        Some(id)
    }

    fn module(&mut self, path: &[Ident]) -> Option<FileId> {
        let name = path.iter().map(|i| &*i.name).collect::<Vec<_>>().join(".");
        let span = path.first()?.span.to(path.last()?.span);
        if let Some(i) = self.lib.files.iter().position(|f| f.module == name) {
            if self.open.contains(&name) {
                let from = self.open.iter().position(|o| *o == name).unwrap_or(0);
                let mut circle: Vec<&str> = self.open[from..].iter().map(String::as_str).collect();
                circle.push(&name);
                self.diags.push(
                    Diag::error(Code::ImportCycle, format!("`{name}` imports itself"))
                        .label(span, "closes the circle")
                        .note(format!("the circle is {}", circle.join(" -> ")))
                        .help("move what both need into a third file"),
                );
                return None;
            }
            return Some(FileId(i as u32));
        }
        if name == "std" {
            return self.file("std", "std.vlm".to_string(), STD.as_bytes().to_vec());
        }
        match self.reader.module(&name) {
            Some((shown, bytes)) => self.file(&name, shown, bytes),
            None => {
                let mut known = self.reader.modules();
                known.push("std".to_string());
                let mut diag =
                    Diag::error(Code::UnknownModule, format!("there is no module `{name}`"))
                        .label(span, format!("no file `{name}.vlm` beside this one"));
                diag = match nearest(&name, known.iter().map(String::as_str)) {
                    Some(n) => diag.help_edit(format!("did you mean `{n}`?"), span, n),
                    None => diag.help("imported files lie in the folder of the spec"),
                };
                self.diags.push(diag);
                None
            }
        }
    }

    fn import(&mut self, into: FileId, u: &ast::Use) {
        let Some(from) = self.module(&u.path) else {
            for name in &u.names {
                self.bind(into, name, Def::Missing(name.clone()), false);
            }
            return;
        };
        for name in &u.names {
            let Some(def) = self.lib.lookup(from, &name.name).cloned() else {
                let known = self.lib.scope(from).map(|s| s.own.as_slice()).unwrap_or_default();
                let module = u.path.iter().map(|i| &*i.name).collect::<Vec<_>>().join(".");
                let mut diag =
                    Diag::error(Code::UnknownName, format!("`{module}` has no `{}`", name.name))
                        .label(name.span, "not declared there");
                diag = match nearest(&name.name, known.iter().map(String::as_str)) {
                    Some(n) => diag.help_edit(format!("did you mean `{n}`?"), name.span, n),
                    None => diag.help(format!("it declares {}", known.join(", "))),
                };
                self.diags.push(diag);
                self.bind(into, name, Def::Missing(name.clone()), false);
                continue;
            };
            self.bind(into, name, def, false);
        }
    }

    fn bind(&mut self, file: FileId, name: &Ident, def: Def, own: bool) {
        let scope = &mut self.lib.files[file.0 as usize];
        if let Some(other) = scope.names.get(&name.name) {
            let other = other.span();
            let mut diag =
                Diag::error(Code::Duplicate, format!("`{}` is declared twice", name.name))
                    .label(name.span, "here again");
            if other.file == name.span.file {
                diag = diag.secondary(other, "first here");
            }
            self.diags.push(diag.help("rename one of the two"));
            return;
        }
        scope.names.insert(name.name.clone(), def);
        if own {
            scope.own.push(name.name.clone());
        }
    }

    fn declare(&mut self, file: FileId, item: Item) {
        let (name, def) = match item {
            Item::Use(_) => return,
            Item::Variant(ast) => {
                let d = Arc::new(Decl { file, ast });
                return self.lib.files[file.0 as usize].variants.push(d);
            }
            Item::Import(ast) => {
                let d = Arc::new(Decl { file, ast });
                return self.lib.files[file.0 as usize].imports.push(d);
            }
            Item::Symbol(i) => (i.clone(), Def::Symbol(i)),
            Item::Enum(ast) => (ast.name.clone(), Def::Enum(Arc::new(Decl { file, ast }))),
            Item::Config(ast) => (ast.name.clone(), Def::Config(Arc::new(Decl { file, ast }))),
            Item::Fn(ast) => (ast.name.clone(), Def::Fn(Arc::new(Decl { file, ast }))),
            Item::Module(ast) => (ast.name.clone(), Def::Module(Arc::new(Decl { file, ast }))),
        };
        self.bind(file, &name, def, true);
    }
}
