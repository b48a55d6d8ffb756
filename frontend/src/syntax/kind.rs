//! Kinds of tokens and nodes, and the lexical grammar.

use logos::Logos;

macro_rules! kinds {
    ($($(#[$attribute:meta])* $name:ident $text:literal,)*) => {
        /// Kind of a token or a node of the lossless tree.
        #[derive(Logos, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u16)]
        pub enum SyntaxKind {
            $(
                #[doc = $text]
                $(#[$attribute])*
                $name,
            )*
        }

        impl SyntaxKind {
            const ALL: &[SyntaxKind] = &[$(SyntaxKind::$name),*];

            /// How messages call it: "`(`", "a name".
            pub fn describe(self) -> &'static str {
                match self { $(SyntaxKind::$name => $text,)* }
            }
        }
    };
}

kinds! {
    // Blanks and comments.
    #[regex(r"[ \t\r\u{c}\u{feff}]+", priority = 1)] Whitespace "a blank",
    #[regex(r"\r?\n", priority = 3)] Newline "end of line",
    #[regex(r"//[^\n]*", allow_greedy = true)] Comment "a comment",
    DocComment "a doc comment",
    FileDoc "a file's doc comment",

    // Words and literals.
    #[regex(r"[A-Za-z_][A-Za-z0-9_]*", priority = 2)] Ident "a name",
    #[regex(r"[0-9][0-9_]*", priority = 4)] Int "a number",
    #[regex(r"[0-9][0-9_]*\.[0-9][0-9_]*([eE][+-]?[0-9]+)?", priority = 4)]
    #[regex(r"[0-9][0-9_]*[eE][+-]?[0-9]+", priority = 4)] Float "a number",
    #[regex(r"[0-9][0-9_]*(\.[0-9][0-9_]*)?[A-Za-z_][A-Za-z0-9_]*", priority = 2)]
    BadNumber "a malformed number",
    #[regex(r#""([^"\\\n\r]|\\[^\n\r])*""#)] String "a string",
    #[regex(r#""([^"\\\n\r]|\\[^\n\r])*\\?"#)] UnclosedString "a string",
    #[regex(r"'[^'\n\r]*'?")] QuotedString "a string",
    Unknown "an unknown character",

    // Marks.
    #[token("(")] OpenParen "`(`",
    #[token(")")] CloseParen "`)`",
    #[token("[")] OpenSquare "`[`",
    #[token("]")] CloseSquare "`]`",
    #[token("{")] OpenBrace "`{`",
    #[token("}")] CloseBrace "`}`",
    #[token(",")] Comma "`,`",
    #[token(":")] Colon "`:`",
    #[token(";")] Semicolon "`;`",
    #[token("=")] Equals "`=`",
    #[token("==")] EqualsEquals "`==`",
    #[token("!=")] NotEquals "`!=`",
    #[token("<")] Less "`<`",
    #[token("<=")] LessEquals "`<=`",
    #[token(">")] Greater "`>`",
    #[token(">=")] GreaterEquals "`>=`",
    #[token("+")] Plus "`+`",
    #[token("-")] Minus "`-`",
    #[token("*")] Star "`*`",
    #[token("**")] StarStar "`**`",
    #[token("/")] Slash "`/`",
    #[token("%")] Percent "`%`",
    #[token(".")] Dot "`.`",
    #[token("..")] DotDot "`..`",
    #[token("->")] Arrow "`->`",
    // Not of the language, but worth a message of their own.
    #[token("=>")] FatArrow "`=>`",
    #[token("&&")] AndAnd "`&&`",
    #[token("||")] OrOr "`||`",
    #[token("!")] Bang "`!`",
    #[token("@")] At "`@`",

    // Words that are never names.
    #[token("use")] UseWord "`use`",
    #[token("symbol")] SymbolWord "`symbol`",
    #[token("enum")] EnumWord "`enum`",
    #[token("config")] ConfigWord "`config`",
    #[token("fn")] FnWord "`fn`",
    #[token("module")] ModuleWord "`module`",
    #[token("model")] ModelWord "`model`",
    #[token("variant")] VariantWord "`variant`",
    #[token("import")] ImportWord "`import`",
    #[token("let")] LetWord "`let`",
    #[token("require")] RequireWord "`require`",
    #[token("param")] ParamWord "`param`",
    #[token("part")] PartWord "`part`",
    #[token("stack")] StackWord "`stack`",
    #[token("input")] InputWord "`input`",
    #[token("collect")] CollectWord "`collect`",
    #[token("forward")] ForwardWord "`forward`",
    #[token("region")] RegionWord "`region`",
    #[token("emit")] EmitWord "`emit`",
    #[token("loss")] LossWord "`loss`",
    #[token("output")] OutputWord "`output`",
    #[token("for")] ForWord "`for`",
    #[token("in")] InWord "`in`",
    #[token("if")] IfWord "`if`",
    #[token("else")] ElseWord "`else`",
    #[token("true")] TrueWord "`true`",
    #[token("false")] FalseWord "`false`",
    #[token("and")] AndWord "`and`",
    #[token("not")] NotWord "`not`",
    Eof "end of file",

    // Items and what they are made of.
    File "a file",
    Use "an import",
    UsePath "a path",
    Names "names",
    Symbol "a symbol",
    Enum "an enumeration",
    EnumValues "values",
    EnumValue "a value",
    Config "a configuration",
    Fields "fields",
    Field "a field",
    ListTy "a list type",
    Fn "a function",
    DimNames "dim parameters",
    Args "arguments",
    Arg "an argument",
    Default "a default",
    Module "a module",
    Members "members",
    Variant "a variant",
    Base "a base",
    Settings "settings",
    Setting "a setting",
    Path "a path",
    Import "a checkpoint import",
    ImportRules "import rules",
    Fixed "a fixed key",
    Ignore "ignored keys",

    // Members and their clauses.
    Require "a constraint",
    Let "a binding",
    Param "a parameter",
    Init "an initial value",
    Key "a stored name",
    Each "stored names",
    NoDecay "`no_decay`",
    When "a condition",
    Part "a part",
    Counter "a counter",
    PartNew "a module with arguments",
    PartIf "a choice of modules",
    Input "an input",
    From "a source",
    Collect "a collection",
    Forward "a forward block",

    // Types.
    TensorTy "a tensor type",
    NameTy "a type",
    TupleTy "a tuple type",
    Dims "dims",
    RestDim "`..`",
    Dim "a dim",
    SegmentsDim "segments",
    Segment "a segment",

    // Statements.
    Block "a block",
    Pattern "names",
    Assign "an assignment",
    Region "a region",
    Emit "an emit statement",
    Loss "a loss",
    Weight "a weight",
    Output "an output",
    For "a loop",

    // Expressions.
    Name "a name",
    Literal "a literal",
    NameRef "a name",
    FieldExpr "a field",
    Call "a call",
    CallArgs "arguments",
    CallArg "an argument",
    IndexExpr "a slice",
    Indices "indices",
    RestIndex "`..`",
    AtIndex "an index",
    RangeIndex "a range",
    Unary "an operation",
    Binary "an operation",
    Reshape "a reshape",
    Tuple "a tuple",
    List "a list",
    If "a choice",
    Error "an error",
}

use SyntaxKind::*;

impl SyntaxKind {
    /// Blanks and comments.
    pub fn is_trivia(self) -> bool {
        matches!(self, Whitespace | Newline | Comment | DocComment | FileDoc)
    }

    /// A comment of any sort.
    pub fn is_comment(self) -> bool {
        matches!(self, Comment | DocComment | FileDoc)
    }

    /// A word that is never a name.
    pub fn is_keyword(self) -> bool {
        (UseWord..Eof).contains(&self)
    }

    /// Begins an item and nothing else.
    pub fn begins_item_only(self) -> bool {
        matches!(
            self,
            UseWord
                | SymbolWord
                | EnumWord
                | ConfigWord
                | ModuleWord
                | ModelWord
                | VariantWord
                | ImportWord
        )
    }

    /// Begins a member of a module (or an item), but no statement.
    pub fn begins_member_only(self) -> bool {
        self.begins_item_only()
            || matches!(
                self,
                FnWord
                    | RequireWord
                    | ParamWord
                    | PartWord
                    | StackWord
                    | InputWord
                    | CollectWord
                    | ForwardWord
            )
    }

    /// Begins an item, a member or a statement, but no expression.
    pub fn begins_line(self) -> bool {
        self.begins_member_only()
            || matches!(self, LetWord | RegionWord | EmitWord | LossWord | OutputWord | ForWord)
    }

    /// Opens a pair.
    pub fn is_open(self) -> bool {
        matches!(self, OpenParen | OpenSquare | OpenBrace)
    }

    /// Closes a pair.
    pub fn is_close(self) -> bool {
        matches!(self, CloseParen | CloseSquare | CloseBrace)
    }

    /// What closes the pair this kind opens.
    pub fn closer(self) -> SyntaxKind {
        match self {
            OpenParen => CloseParen,
            OpenSquare => CloseSquare,
            _ => CloseBrace,
        }
    }
}

/// Ties the kinds to the tree library.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Vlm {}

impl rowan::Language for Vlm {
    type Kind = SyntaxKind;

    fn kind_from_raw(raw: rowan::SyntaxKind) -> SyntaxKind {
        SyntaxKind::ALL.get(raw.0 as usize).copied().unwrap_or(Error)
    }

    fn kind_to_raw(kind: SyntaxKind) -> rowan::SyntaxKind {
        rowan::SyntaxKind(kind as u16)
    }
}

/// A node of the lossless tree.
pub type SyntaxNode = rowan::SyntaxNode<Vlm>;
/// A token of the lossless tree.
pub type SyntaxToken = rowan::SyntaxToken<Vlm>;
/// A node or a token.
pub type SyntaxElement = rowan::SyntaxElement<Vlm>;
