//! The table of codes.
//!
//! To add a code: one line in the table, one page `explain/V....md`. The first two digits of the
//! number name the phase.

use std::fmt;

/// The phase a code belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// 01: text to tree.
    Syntax,
    /// 02: names, types and shapes.
    Names,
    /// 03: how the model is laid out over devices.
    Layout,
    /// 04: passes over the graph.
    Passes,
    /// 05: code generation.
    Codegen,
    /// 06: running.
    Runtime,
}

macro_rules! codes {
    ($($number:ident $name:ident $title:literal,)*) => {
        /// A stable name for a kind of diagnostic.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Code {
            $(
                #[doc = concat!(stringify!($number), ": ", $title)]
                $name,
            )*
        }

        impl Code {
            /// All codes, by number.
            pub const ALL: &[Code] = &[$(Code::$name),*];

            /// `V0101`
            pub fn number(self) -> &'static str {
                match self { $(Code::$name => stringify!($number),)* }
            }

            /// The name in the source: `UnexpectedToken`.
            pub fn name(self) -> &'static str {
                match self { $(Code::$name => stringify!($name),)* }
            }

            /// One line.
            pub fn title(self) -> &'static str {
                match self { $(Code::$name => $title,)* }
            }

            /// The page that `vlmc explain` prints.
            pub fn explain(self) -> &'static str {
                match self {
                    $(Code::$name => include_str!(
                        concat!("explain/", stringify!($number), ".md")
                    ),)*
                }
            }
        }
    };
}

codes! {
    V0101 UnexpectedToken    "unexpected token",
    V0102 NotUtf8            "file is not UTF-8",
    V0103 FileTooLarge       "file is too large",
    V0104 UnclosedDelimiter  "unclosed delimiter",
    V0105 TooDeep            "nested too deeply",
    V0106 BadNumber          "malformed number",
    V0107 BadString          "malformed string",
    V0108 UnknownCharacter   "unknown character",
    V0109 DocOnNothing       "doc comment on nothing",
    V0110 UnusedValue        "value is not used",
    V0111 ChainedComparison  "comparisons do not chain",
    V0201 UnknownName        "unknown name",
    V0202 Duplicate          "declared twice",
    V0203 UnknownModule      "unknown module file",
    V0204 ImportCycle        "imports in a circle",
    V0205 WrongKind          "wrong kind of value",
    V0206 WrongArguments     "wrong arguments",
    V0207 DimMismatch        "dims do not match",
    V0208 DtypeMismatch      "element types do not match",
    V0209 RankMismatch       "wrong number of dims",
    V0210 ReshapeElements    "reshape changes the number of elements",
    V0211 NotDivisible       "not divisible",
    V0212 InvalidOperands    "operands do not fit the op",
    V0213 SplitSizes         "pieces do not cover the dim",
    V0214 EinsumPattern      "bad einsum pattern",
    V0215 CannotInfer        "dim parameter cannot be inferred",
    V0216 ConditionNotConfiguration "condition is not of the configuration",
    V0217 BranchesDiffer     "types differ",
    V0218 NotALoss           "a loss is a pair of sum and count",
    V0219 Recursion          "recursion",
    V0220 BadConfigValue     "bad configuration value",
    V0221 ConstraintViolated "constraint violated",
    V0222 UnknownVariant     "unknown variant",
    V0223 NoModel            "no model to run",
    V0224 UnsupportedConfig  "checkpoint configuration not supported",
    V0301 TensorParallel     "tensor parallelism is not planned",
    V0302 LayersDoNotFit     "layers do not fill the chunks",
    V0303 UnevenSplit        "first and last layers do not fit",
    V0304 BadLayout          "layout letters do not fit",
    V0305 OneRank            "one rank cannot interleave chunks",
    V0306 MixedSplits        "two ways to place layers",
    V0307 ScheduleKind       "schedule does not fit the chunks",
    V0308 BadMicrobatches    "microbatches do not fill the pipeline",
    V0309 ContextParallel    "rows do not divide over ranks",
    V0310 ExpertParallel     "experts do not divide over ranks",
    V0311 LayoutTooLarge     "layout is too large",
    V0401 UnknownPass        "unknown pass",
    V0402 BadGraphText       "graph text does not parse",
    V0403 InvalidGraph       "graph breaks an invariant",
    V0404 CannotCompile      "program cannot be compiled",
    V0405 RecomputeInVain    "recompute does not lower the peak",
    V0406 MemoryLimit        "memory limit cannot be met",
    V0601 FileAccess         "file cannot be used",
    V0602 BadTensorFile      "tensor file is malformed",
    V0603 BadBatch           "batch is refused",
    V0604 BadInput           "input does not fit",
    V0605 BadWeights         "weights do not fit the model",
    V0606 BadSetting         "bad setting",
    V0607 NotYet             "not supported yet",
    V0608 RunFailed          "a run stopped",
}

impl Code {
    /// The code of a number as a user writes it; `v0101` will do.
    pub fn from_number(number: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.number().eq_ignore_ascii_case(number))
    }

    /// The phase, which the number tells.
    pub fn phase(self) -> Phase {
        match &self.number()[1..3] {
            "01" => Phase::Syntax,
            "02" => Phase::Names,
            "03" => Phase::Layout,
            "04" => Phase::Passes,
            "05" => Phase::Codegen,
            _ => Phase::Runtime,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_order_and_have_a_page() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0].number() < pair[1].number(), "{} before {}", pair[0], pair[1]);
        }
        for code in Code::ALL {
            let page = code.explain();
            let heading = format!("# {}: {}\n", code.number(), code.title());
            assert!(page.starts_with(&heading), "{code}: the page must start with {heading:?}");
            assert!(
                ["vlm-error", "console", "text"]
                    .iter()
                    .any(|kind| page.contains(&format!("\n```{kind}\n"))),
                "{code}"
            );
            assert_eq!(Code::from_number(&code.number().to_lowercase()), Some(*code));
        }
    }
}
