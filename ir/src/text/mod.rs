//! The text form of programs (`.vir`): printing, parsing.

pub mod cursor;
pub mod parse;
pub mod print;
