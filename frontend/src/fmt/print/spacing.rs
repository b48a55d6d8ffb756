//! Blanks between tokens of a line.

use crate::syntax::kind::SyntaxKind::{self, *};

/// Whether a blank goes between two tokens, each given with the kind of its node.
pub(super) fn blank(
    before: SyntaxKind,
    before_in: SyntaxKind,
    after: SyntaxKind,
    after_in: SyntaxKind,
) -> bool {
    match before {
        OpenParen | OpenSquare | Dot => return false,
        OpenBrace if before_in == Names => return false,
        Minus if before_in == Unary => return false,
        Colon if before_in == RangeIndex => return false,
        _ => {}
    }
    match after {
        CloseParen | CloseSquare | Comma | Dot => false,
        CloseBrace if after_in == Names => false,
        Colon => !matches!(after_in, Arg | Segment | RangeIndex),
        OpenParen => !matches!(after_in, CallArgs | Args | Init),
        OpenSquare => match after_in {
            Indices | DimNames | Counter => false,
            // The dtype of a type is a name; before the dims of a reshape is the word `as`.
            Dims => before_in != Name,
            _ => true,
        },
        _ => true,
    }
}
