//! Attribute types: how each prints and parses.

use crate::dim::Dim;
use crate::text::cursor::{Cursor, ParseError};
use crate::ty::{DType, MeshAxis};
use std::fmt::Write as _;

/// A type that attributes of ops may have.
pub trait Attribute: Sized {
    /// Writes the value so that [`Attribute::parse`] reads it back.
    fn print(&self, out: &mut String);

    /// Reads a value.
    ///
    /// # Errors
    /// Says what was expected at which place of the text.
    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError>;

    /// Calls `f` with every dim in the value.
    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        let _ = f;
    }

    /// What a missing attribute means, for types that have such a value.
    fn missing() -> Option<Self> {
        None
    }
}

/// An attribute that could not be built from what the caller gave.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("attribute `{name}`: {reason}")]
pub struct AttributeError {
    /// The attribute.
    pub name: &'static str,
    /// What is wrong.
    pub reason: String,
}

/// Reads an attribute of type `A` from its text; a missing one takes its default.
pub(crate) fn from_text<A: Attribute>(
    name: &'static str,
    text: Option<String>,
) -> Result<A, AttributeError> {
    let Some(text) = text else {
        return A::missing()
            .ok_or_else(|| AttributeError { name, reason: "is missing".to_string() });
    };
    let mut cursor = Cursor::new(&text);
    let value = A::parse(&mut cursor);
    match value {
        Ok(v) if cursor.at_end() => Ok(v),
        Ok(_) => Err(AttributeError { name, reason: format!("does not take `{text}`") }),
        Err(e) => Err(AttributeError { name, reason: e.message }),
    }
}

/// A real number as an attribute: compared by its bits, so that ops can be hashed and ordered.
#[derive(Clone, Copy, Debug)]
pub struct Scalar(pub f64);

impl Scalar {
    fn key(self) -> u64 {
        // All that are no numbers print alike.
        let bits = if self.0.is_nan() { f64::NAN.to_bits() } else { self.0.to_bits() };
        // Order of the bits as signed magnitude follows the order of the numbers.
        if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Scalar {}

impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The six comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Comparison {
    /// Every comparison.
    pub const ALL: [Comparison; 6] = [
        Comparison::Eq,
        Comparison::Ne,
        Comparison::Lt,
        Comparison::Le,
        Comparison::Gt,
        Comparison::Ge,
    ];

    /// As written in text.
    pub fn name(self) -> &'static str {
        match self {
            Comparison::Eq => "eq",
            Comparison::Ne => "ne",
            Comparison::Lt => "lt",
            Comparison::Le => "le",
            Comparison::Gt => "gt",
            Comparison::Ge => "ge",
        }
    }

    /// Whether it holds of `a` and `b`.
    pub fn holds<T: PartialOrd>(self, a: T, b: T) -> bool {
        match self {
            Comparison::Eq => a == b,
            Comparison::Ne => a != b,
            Comparison::Lt => a < b,
            Comparison::Le => a <= b,
            Comparison::Gt => a > b,
            Comparison::Ge => a >= b,
        }
    }
}

impl Attribute for u32 {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let at = cursor.position();
        let v = cursor.integer()?;
        u32::try_from(v)
            .map_err(|_| ParseError::new(at, format!("{v} is not from 0 to {}", u32::MAX)))
    }
}

impl Attribute for i64 {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.integer()
    }
}

impl Attribute for bool {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let at = cursor.position();
        match cursor.word()? {
            "true" => Ok(true),
            "false" => Ok(false),
            other => Err(ParseError::new(at, format!("expected true or false, found `{other}`"))),
        }
    }

    fn missing() -> Option<Self> {
        Some(false)
    }
}

impl Attribute for Scalar {
    fn print(&self, out: &mut String) {
        // The shortest text that reads back as the same number.
        let _ = write!(out, "{:?}", self.0);
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.number().map(Scalar)
    }
}

impl Attribute for DType {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.dtype()
    }
}

impl Attribute for Comparison {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let at = cursor.position();
        let word = cursor.word()?;
        Comparison::ALL
            .into_iter()
            .find(|c| c.name() == word)
            .ok_or_else(|| ParseError::new(at, format!("unknown comparison `{word}`")))
    }
}

impl Attribute for MeshAxis {
    fn print(&self, out: &mut String) {
        out.push_str(self.name());
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        let at = cursor.position();
        let word = cursor.word()?;
        MeshAxis::from_name(word)
            .ok_or_else(|| ParseError::new(at, format!("unknown mesh axis `{word}`")))
    }
}

impl Attribute for Dim {
    fn print(&self, out: &mut String) {
        let _ = write!(out, "{self}");
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.dim()
    }

    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        f(self);
    }
}

impl Attribute for String {
    fn print(&self, out: &mut String) {
        crate::text::print::quote(self, out);
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.string()
    }
}

impl<A: Attribute> Attribute for Vec<A> {
    fn print(&self, out: &mut String) {
        out.push('[');
        for (i, a) in self.iter().enumerate() {
            if i > 0 {
                out.push_str(", ");
            }
            a.print(out);
        }
        out.push(']');
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        cursor.expect("[")?;
        let mut items = vec![];
        while !cursor.eat("]") {
            if !items.is_empty() {
                cursor.expect(",")?;
            }
            items.push(A::parse(cursor)?);
        }
        Ok(items)
    }

    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|a| a.visit_dims(f));
    }
}

impl<A: Attribute> Attribute for Option<A> {
    fn print(&self, out: &mut String) {
        match self {
            Some(a) => a.print(out),
            None => out.push_str("none"),
        }
    }

    fn parse(cursor: &mut Cursor<'_>) -> Result<Self, ParseError> {
        if cursor.eat_word("none") { Ok(None) } else { A::parse(cursor).map(Some) }
    }

    fn visit_dims(&self, f: &mut dyn FnMut(&Dim)) {
        self.iter().for_each(|a| a.visit_dims(f));
    }

    fn missing() -> Option<Self> {
        Some(None)
    }
}
