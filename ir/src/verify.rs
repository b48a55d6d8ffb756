//! The verifier (being written).
use crate::graph::Program;
/// E.
#[derive(Debug)]
pub struct VerifyError;
impl VerifyError {
    /// R.
    pub fn render(&self, _: &Program) -> String {
        String::new()
    }
}
/// V.
pub fn verify(_: &Program) -> Vec<VerifyError> {
    vec![]
}
