//! The op table and what follows from it.
//!
//! `table.rs` declares each op once. The macro here turns the declarations into the [`Op`] enum,
//! its text form, and the columns that shape inference, the evaluator, the cost model and the
//! reference page read. To add an op: add its declaration; the compiler names the functions that
//! are missing.

pub mod attr;
pub mod cost;
pub mod grad;
pub mod reference;
pub mod shape;
mod table;

pub use attr::{Comparison, Scalar};
pub use cost::Cost;
pub use grad::Gradient;
pub use shape::TypeError;
pub use table::Op;

use crate::ty::Ty;

/// What executing an op does besides computing its results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing: it may move, be merged with its twin, be recomputed or dropped.
    Pure,
    /// It talks to other ranks: every rank of the group must execute it, in the same order.
    Collective,
    /// It stands for structure of the program: an input, a parameter, a call.
    Structural,
}

/// The shape of the work of an op, which is what fusion and lowering ask first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Each result element depends on the operand elements of the same index.
    Elementwise,
    /// A different arrangement of the same elements.
    View,
    /// No operands.
    Source,
    /// Some dims disappear by a sum or maximum.
    Reduction,
    /// A product with a sum: matrix engines do it.
    Contraction,
    /// Rows chosen by data.
    Indexing,
    /// Follows the rows of a sequence, document by document.
    Sequence,
    /// Exchange between ranks.
    Communication,
    /// Inputs, parameters, calls.
    Structure,
}

/// How many operands an op takes, from the names in its declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arity {
    /// At least.
    pub min: usize,
    /// At most; `None` for any number.
    pub max: Option<usize>,
}

/// The declaration of an op, as data.
#[derive(Debug)]
pub struct OpInfo {
    /// Name in text.
    pub name: &'static str,
    /// What it computes, with the formula.
    pub doc: &'static str,
    /// Operand names. `x?` may be missing (only at the end), `xs..` is any number.
    pub operands: &'static [&'static str],
    /// Attribute names and Rust types in order.
    pub attributes: &'static [(&'static str, &'static str)],
    /// Result names.
    pub results: &'static [&'static str],
    /// Effect.
    pub effect: Effect,
    /// Class.
    pub class: Class,
    /// Floating-point work.
    pub cost: Cost,
    /// How gradients pass from its results to its operands.
    pub gradient: Gradient,
}

impl OpInfo {
    /// The number of operands it takes.
    pub fn arity(&self) -> Arity {
        let variadic = self.operands.iter().any(|o| o.ends_with(".."));
        let optional = self.operands.iter().filter(|o| o.ends_with('?')).count();
        let n = self.operands.len();
        Arity { min: if variadic { n - 1 } else { n - optional }, max: (!variadic).then_some(n) }
    }

    /// The name of operand `i` without its mark.
    pub fn operand_name(&self, i: usize) -> &'static str {
        match self.operands.get(i).or(self.operands.last()) {
            Some(name) => name.trim_end_matches(['?', '.']),
            None => "operand",
        }
    }
}

impl Op {
    /// Its name in text.
    pub fn name(&self) -> &'static str {
        self.info().name
    }

    /// The result types for these operand types.
    ///
    /// # Errors
    /// Says which operand or dim does not fit, in the words of the op's declaration.
    pub fn infer(&self, operands: &[Ty]) -> Result<Vec<Ty>, TypeError> {
        let arity = self.info().arity();
        if operands.len() < arity.min || arity.max.is_some_and(|m| operands.len() > m) {
            return Err(TypeError::new(format!(
                "takes {}, not {} operands",
                match arity.max {
                    Some(m) if m == arity.min => m.to_string(),
                    Some(m) => format!("{} to {m}", arity.min),
                    None => format!("at least {}", arity.min),
                },
                operands.len()
            )));
        }
        self.infer_unchecked(operands)
    }
}

/// Generates [`Op`] and its columns from the declarations; see [`table`].
macro_rules! ops {
    ($(
        $(#[doc = $doc:literal])*
        $Variant:ident = $name:literal ($($operand:literal),*)
        $({ $($(#[doc = $field_doc:literal])* $field:ident : $field_ty:ty),* $(,)? })?
        -> ($($result:literal),*)
        : $effect:ident, $class:ident, $cost:expr, $infer:path, $eval:path,
        $gradient:expr;
    )*) => {
        /// An op with its attributes. What an attribute means stands in the text of its op.
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(missing_docs)]
        pub enum Op {
            $(
                $(#[doc = $doc])*
                $Variant $({ $($(#[doc = $field_doc])* $field: $field_ty),* })?,
            )*
        }

        /// Every declaration, in the order of the table.
        static TABLE: &[OpInfo] = &[$(
            OpInfo {
                name: $name,
                doc: concat!($($doc, "\n"),*),
                operands: &[$($operand),*],
                attributes: &[$($((stringify!($field), stringify!($field_ty))),*)?],
                results: &[$($result),*],
                effect: Effect::$effect,
                class: Class::$class,
                cost: $cost,
                gradient: $gradient,
            },
        )*];

        /// Discriminants in table order.
        #[derive(Clone, Copy)]
        enum Kind { $($Variant),* }

        impl Op {
            /// Every declaration, in the order of the table.
            pub fn all() -> &'static [OpInfo] {
                TABLE
            }

            /// The declaration of this op.
            pub fn info(&self) -> &'static OpInfo {
                let kind = match self { $(Op::$Variant { .. } => Kind::$Variant,)* };
                &TABLE[kind as usize]
            }

            /// Result types; the number of operands has been checked.
            pub(crate) fn infer_unchecked(&self, operands: &[Ty]) -> Result<Vec<Ty>, TypeError> {
                match self { $(Op::$Variant { .. } => $infer(self, operands),)* }
            }

            /// Evaluates the op on host tensors.
            pub(crate) fn eval<R: Real>(&self, call: &Call<'_, R>) -> EvalResult<R> {
                match self { $(Op::$Variant { .. } => $eval(call),)* }
            }

            /// Writes the attributes as `{a = 1, b = 2}` with a leading blank; nothing without
            /// attributes.
            pub fn print_attributes(&self, out: &mut String) {
                match self { $(
                    Op::$Variant $({ $($field),* })? => {
                        $(
                        let mut separator = " {";
                        $(
                            out.push_str(std::mem::replace(&mut separator, ", "));
                            out.push_str(stringify!($field));
                            out.push_str(" = ");
                            Attribute::print($field, out);
                        )*
                        let _ = separator;
                        out.push('}');
                        )?
                    }
                )* }
            }

            /// Calls `f` with every dim in the attributes.
            pub fn visit_dims(&self, f: &mut dyn FnMut(&$crate::dim::Dim)) {
                match self { $(
                    Op::$Variant $({ $($field),* })? => {
                        $($(Attribute::visit_dims($field, f);)*)?
                    }
                )* }
            }

            /// Reads the attributes of the op called `name`; `None` when there is no such op.
            pub fn parse(name: &str, cursor: &mut Cursor<'_>) -> Option<Result<Op, ParseError>> {
                match name { $(
                    $name => {
                        let read = |cursor: &mut Cursor<'_>| {
                            $(let mut separator = "{";
                            $(
                                cursor.expect(std::mem::replace(&mut separator, ","))?;
                                cursor.expect_word(stringify!($field))?;
                                cursor.expect("=")?;
                                let $field = <$field_ty as Attribute>::parse(cursor)?;
                            )*
                            let _ = separator;
                            cursor.expect("}")?;
                            )?
                            let _ = cursor;
                            Ok(Op::$Variant $({ $($field),* })?)
                        };
                        Some(read(cursor))
                    }
                )*
                    _ => None,
                }
            }

            /// Builds the op called `name`, asking for each attribute by its name. What `get`
            /// returns is read as the attribute's text; `None` leaves out an attribute, which only
            /// one with a default may be.
            ///
            /// # Errors
            /// The name of the attribute and what is wrong with it.
            pub fn from_attributes(
                name: &str,
                get: &mut dyn FnMut(&str, &str) -> Option<String>,
            ) -> Option<Result<Op, AttributeError>> {
                match name { $(
                    $name => {
                        let mut read = || {
                        let get = &mut *get;
                        $($(
                            let $field = attr::from_text::<$field_ty>(
                                stringify!($field),
                                get(stringify!($field), stringify!($field_ty)),
                            )?;
                        )*)?
                        let _ = &get;
                        Ok(Op::$Variant $({ $($field),* })?)
                        };
                        // Not called in place, since an op without attributes returns no error.
                        Some(read())
                    }
                )*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use ops;
