//! The owned syntax tree that checking and lowering read.
//!
//! The lossless tree (`tree.rs`) keeps every blank and comment and is what the formatter works on;
//! this one keeps the meaning and the spans. Built from it by `build.rs`; a part that did not
//! parse is left out, or stands as [`ExprKind::Error`], and its error has been reported.

/// Index of a source file in a [`crate::source::Sources`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileId(pub u32);

/// A byte range of a source file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Span {
    /// The file.
    pub file: FileId,
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// The smallest span that covers both; `other` must be of the same file.
    pub fn to(self, other: Span) -> Span {
        Span { file: self.file, start: self.start.min(other.start), end: self.end.max(other.end) }
    }
}

/// A name where it is written.
#[derive(Clone, PartialEq, Debug)]
pub struct Ident {
    /// The name.
    pub name: String,
    /// Where.
    pub span: Span,
}

/// A string literal, unescaped.
#[derive(Clone, PartialEq, Debug)]
pub struct Text {
    /// The contents.
    pub value: String,
    /// Where, quotes included.
    pub span: Span,
}

/// One file.
#[derive(Clone, Debug)]
pub struct File {
    /// Which.
    pub id: FileId,
    /// `//!` lines.
    pub doc: String,
    /// In source order.
    pub items: Vec<Item>,
}

/// A top-level declaration.
#[derive(Clone, Debug)]
pub enum Item {
    /// `use a.b.{c, d}`
    Use(Use),
    /// `symbol T`
    Symbol(Ident),
    /// `enum`
    Enum(Enum),
    /// `config`
    Config(Config),
    /// `fn`
    Fn(Fn),
    /// `module` or `model`
    Module(Module),
    /// `variant`
    Variant(Variant),
    /// `import`
    Import(Import),
}

/// `use path.{names}`
#[derive(Clone, Debug)]
pub struct Use {
    /// `a.b`
    pub path: Vec<Ident>,
    /// What is imported.
    pub names: Vec<Ident>,
    /// The whole item.
    pub span: Span,
}

/// `enum Name { a = "x", b }`
#[derive(Clone, Debug)]
pub struct Enum {
    /// Doc comment.
    pub doc: String,
    /// Its name.
    pub name: Ident,
    /// Values with the text that stands for them in a checkpoint's configuration.
    pub values: Vec<(Ident, Option<Text>)>,
}

/// `config Name { .. }`
#[derive(Clone, Debug)]
pub struct Config {
    /// Doc comment.
    pub doc: String,
    /// Its name.
    pub name: Ident,
    /// Fields in order.
    pub fields: Vec<Field>,
    /// Constraints over the fields.
    pub requires: Vec<Expr>,
}

/// A field of a configuration.
#[derive(Clone, Debug)]
pub struct Field {
    /// Doc comment.
    pub doc: String,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: ConfigTy,
    /// Default.
    pub default: Option<Expr>,
    /// Key in a checkpoint's configuration file.
    pub key: Option<Text>,
}

/// Type of a configuration field.
#[derive(Clone, Debug)]
pub enum ConfigTy {
    /// `int`, `float`, `bool`, `string`, an enumeration or a configuration.
    Name(Ident),
    /// `[T]`
    List(Box<ConfigTy>, Span),
}

/// `fn`
#[derive(Clone, Debug)]
pub struct Fn {
    /// Doc comment.
    pub doc: String,
    /// Its name.
    pub name: Ident,
    /// Dim parameters.
    pub dims: Vec<Ident>,
    /// Arguments.
    pub args: Vec<Arg>,
    /// Type of the value.
    pub ret: Ty,
    /// What it does.
    pub body: Block,
}

/// An argument of a function, module or model.
#[derive(Clone, Debug)]
pub struct Arg {
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: Ty,
    /// Default.
    pub default: Option<Expr>,
}

/// A type as written.
#[derive(Clone, Debug)]
pub struct Ty {
    /// What.
    pub kind: TyKind,
    /// Where.
    pub span: Span,
}

/// The forms of a type.
#[derive(Clone, Debug)]
pub enum TyKind {
    /// `f32[a, b]`; without a dtype, the model dtype.
    Tensor(Option<Ident>, Vec<DimTy>),
    /// `int`, `float`, `bool`, `string`, `Sequence`, `Loss`, a configuration or an enumeration.
    Name(Ident),
    /// `(a, b)`
    Tuple(Vec<Ty>),
}

/// One dim of a tensor type.
#[derive(Clone, Debug)]
pub enum DimTy {
    /// `..`
    Rest(Span),
    /// An expression.
    Expr(Expr),
    /// `q: K + k: K`
    Segments(Vec<(Ident, Expr)>, Span),
}

/// `module` or `model`
#[derive(Clone, Debug)]
pub struct Module {
    /// Doc comment.
    pub doc: String,
    /// Declared as a `model`.
    pub is_model: bool,
    /// Its name.
    pub name: Ident,
    /// Arguments.
    pub args: Vec<Arg>,
    /// Members in order.
    pub members: Vec<Member>,
}

/// A member of a module.
#[derive(Clone, Debug)]
pub enum Member {
    /// `let n = expr`
    Let(Ident, Expr),
    /// `require expr`
    Require(Expr),
    /// `param`
    Param(Param),
    /// `part`, or `stack` when it has a counter.
    Part(Part),
    /// `input`
    Input(Input),
    /// `collect name : type`
    Collect(Ident, Ty),
    /// `fn`
    Fn(Fn),
    /// `forward { .. }` of a model; the span is that of the word.
    Forward(Block, Span),
}

/// `param`
#[derive(Clone, Debug)]
pub struct Param {
    /// Doc comment.
    pub doc: String,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: Ty,
    /// Initial value: name and arguments.
    pub init: Option<(Ident, Vec<Expr>)>,
    /// Checkpoint name below the module's prefix.
    pub key: Option<Text>,
    /// Second stored form.
    pub each: Vec<Text>,
    /// Weight decay is off.
    pub no_decay: bool,
    /// Exists only then.
    pub when: Option<Expr>,
}

/// `part` or `stack`
#[derive(Clone, Debug)]
pub struct Part {
    /// Doc comment.
    pub doc: String,
    /// Its name.
    pub name: Ident,
    /// `[i < n]` of a stack.
    pub counter: Option<(Ident, Expr)>,
    /// What it is.
    pub value: PartExpr,
    /// Exists only then.
    pub when: Option<Expr>,
}

/// The value of a part.
#[derive(Clone, Debug)]
pub enum PartExpr {
    /// `Module(args) as "prefix"`
    New {
        /// The module.
        module: Ident,
        /// Arguments.
        args: Vec<CallArg>,
        /// Prefix of its parameters' names.
        prefix: Option<Text>,
    },
    /// `if c { a } else { b }`
    If(Box<Expr>, Box<PartExpr>, Box<PartExpr>),
}

/// `input`
#[derive(Clone, Debug)]
pub struct Input {
    /// Doc comment.
    pub doc: String,
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: Ty,
    /// Host function and arguments.
    pub from: Option<(Ident, Vec<CallArg>)>,
    /// Exists only then.
    pub when: Option<Expr>,
}

/// `variant`
#[derive(Clone, Debug)]
pub struct Variant {
    /// Doc comment.
    pub doc: String,
    /// The model.
    pub model: Ident,
    /// Its name.
    pub name: Text,
    /// The variant it starts from.
    pub base: Option<Text>,
    /// `a.b = value`
    pub sets: Vec<(Vec<Ident>, Expr)>,
}

/// `import`
#[derive(Clone, Debug)]
pub struct Import {
    /// The model.
    pub model: Ident,
    /// `model_type`s of configuration files.
    pub types: Vec<Text>,
    /// Keys that must have this value.
    pub fixed: Vec<(Text, Expr)>,
    /// Keys without influence on the maths.
    pub ignore: Vec<Text>,
}

/// `{ stmts; value }`
#[derive(Clone, Debug)]
pub struct Block {
    /// In order.
    pub stmts: Vec<Stmt>,
    /// The last expression.
    pub value: Option<Box<Expr>>,
    /// Braces included.
    pub span: Span,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// `let a = e`, `let (a, b) = e`
    Let(Vec<Ident>, bool, Expr),
    /// `a = e`
    Assign(Ident, Expr),
    /// `region name { .. }`
    Region(Ident, Block),
    /// `emit name = e`
    Emit(Ident, Expr),
    /// `loss name weight w = e`
    Loss(Ident, Option<Expr>, Expr),
    /// `output name = e`
    Output(Ident, Expr),
    /// `for a in stack { .. }`
    For(Ident, Ident, Block),
    /// `if c { .. } else { .. }` without a value
    If(Expr, Block, Option<Block>),
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expr {
    /// What.
    pub kind: ExprKind,
    /// Where.
    pub span: Span,
}

/// The forms of an expression.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Did not parse.
    Error,
    /// `12`
    Int(i64),
    /// `1e-6`
    Float(f64),
    /// `"a"`
    Str(String),
    /// `true`
    Bool(bool),
    /// `x`
    Name(String),
    /// `a.b`
    Field(Box<Expr>, Ident),
    /// `f(a, k = b)`
    Call(Box<Expr>, Vec<CallArg>),
    /// `x[.., 0:d]`
    Index(Box<Expr>, Vec<Index>),
    /// `-a`, `not a`
    Unary(UnaryOp, Box<Expr>),
    /// `a + b`; the span is that of the operator.
    Binary(BinaryOp, Box<Expr>, Box<Expr>, Span),
    /// `x as [a, b]`
    Reshape(Box<Expr>, Vec<DimTy>),
    /// `(a, b)`; one element in brackets is that element.
    Tuple(Vec<Expr>),
    /// `[a, b]`
    List(Vec<Expr>),
    /// `if c { a } else { b }`
    If(Box<Expr>, Block, Block),
}

/// `a` or `k = a` in a call.
#[derive(Clone, Debug)]
pub struct CallArg {
    /// Name of a named argument.
    pub name: Option<Ident>,
    /// The value.
    pub value: Expr,
}

/// One index.
#[derive(Clone, Debug)]
pub enum Index {
    /// `..`
    Rest(Span),
    /// `i`
    At(Expr),
    /// `a:b`
    Range(Option<Expr>, Option<Expr>, Span),
}

/// Prefix operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOp {
    /// `-`
    Neg,
    /// `not`
    Not,
}

/// Infix operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
    /// `**`
    Pow,
    /// `==`
    Eq,
    /// `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `and`
    And,
    /// `or`
    Or,
}
