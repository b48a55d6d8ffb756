//! The op table. One declaration an op:
//!
//! ```text
//! /// what it computes, with the formula
//! Variant = "name" ("operand", "optional?", "many..") { attribute: Type } -> ("result")
//!     : Effect, Class, cost, shape rule, evaluator, gradient;
//! ```
//!
//! Shapes in the texts: `T` token rows, `H` heads, `d` width of a head, `n` segments of a sequence.
//! `cu_seqlens[n+1]` and `cu_seqlens_padded[n+1]` are cumulative valid and padded lengths: segment
//! `i` owns rows `padded[i] .. padded[i+1]`, of which the first `cu[i+1] - cu[i]` are valid. Every
//! sequence op writes zeros to the other rows, and lets none of them reach a valid row.

use super::attr::{self, Attribute, AttributeError, Comparison, Scalar};
use super::grad::{self, Gradient};
use super::{Class, Cost, Effect, OpInfo, TypeError, cost, ops, shape};
use crate::dim::Dim;
use crate::eval::{
    Call, EvalResult, Real, contract, elementwise, indexing, mesh, movement, sequence, structure,
};
use crate::text::cursor::{Cursor, ParseError};
use crate::ty::{DType, MeshAxis, Ty};

ops! {
    // ---- structure -----------------------------------------------------------------------------

    /// Input `index` of the function.
    Input = "input" () { index: u32 } -> ("value")
        : Structural, Structure, Cost::Free, shape::structural, structure::refuse,
          Gradient::Structural;
    /// Parameter `index` of the function.
    Param = "param" () { index: u32 } -> ("value")
        : Structural, Structure, Cost::Free, shape::structural, structure::refuse,
          Gradient::Structural;
    /// Calls function `callee`. Names of its parameters are those declared, below `scope`; `path`
    /// goes before the origins of its values, and `layer` is its index when it is one of a stack.
    Call = "call" ("arguments..") { callee: String, scope: String, path: String, layer: Option<u32> } -> ("results..")
        : Structural, Structure, Cost::Free, shape::structural, structure::refuse,
          Gradient::Structural;

    // ---- sources -------------------------------------------------------------------------------

    /// A tensor filled with one number.
    Constant = "constant" () { value: Scalar, dtype: DType, shape: Vec<Dim> } -> ("value")
        : Pure, Source, Cost::Free, shape::constant, elementwise::constant, Gradient::None;
    /// `y[.., i, ..] = i` along `axis`.
    Iota = "iota" () { shape: Vec<Dim>, axis: u32 } -> ("value")
        : Pure, Source, Cost::Free, shape::iota, elementwise::iota, Gradient::None;

    // ---- elementwise, one operand --------------------------------------------------------------

    /// `-x`
    Neg = "neg" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::unary_number, elementwise::unary,
          Gradient::Rule(grad::elementwise::neg);
    /// `e^x`
    Exp = "exp" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(8), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::exp);
    /// `ln x`
    Log = "log" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(8), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::log);
    /// `x^(1/2)`
    Sqrt = "sqrt" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(8), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::sqrt);
    /// `x^(-1/2)`
    Rsqrt = "rsqrt" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(8), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::rsqrt);
    /// `1 / x`
    Recip = "recip" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(8), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::recip);
    /// `1 / (1 + e^-x)`, made from `e^-|x|` so that nothing overflows.
    Sigmoid = "sigmoid" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(12), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::sigmoid);
    /// `x * sigmoid(x)`
    Silu = "silu" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(12), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::silu);
    /// `ln(1 + e^x)`, and `x` itself above 20.
    Softplus = "softplus" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(12), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::softplus);
    /// `x * (1 + erf(x / sqrt 2)) / 2`
    Gelu = "gelu" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(16), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::gelu);
    /// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`
    GeluTanh = "gelu_tanh" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(16), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::gelu_tanh);
    /// `tanh x`
    Tanh = "tanh" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(12), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::tanh);
    /// `erf x`, the integral of `2 / sqrt(pi) * e^(-t^2)` from 0 to x.
    Erf = "erf" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(12), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::erf);
    /// `sin x`
    Sin = "sin" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(12), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::sin);
    /// `cos x`
    Cos = "cos" ("x") -> ("y")
        : Pure, Elementwise, Cost::PerResult(12), shape::unary_float, elementwise::unary,
          Gradient::Rule(grad::elementwise::cos);
    /// `not x`
    Not = "not" ("x") -> ("y")
        : Pure, Elementwise, Cost::Free, shape::unary_bool, elementwise::logic, Gradient::None;
    /// The same value as another element type: to a narrower float by rounding to nearest even,
    /// from float to integer toward zero (the nearest i32 when it does not fit, 0 for not-a-number),
    /// from number to bool by `x != 0`.
    Cast = "cast" ("x") { dtype: DType } -> ("y")
        : Pure, Elementwise, Cost::Free, shape::cast, elementwise::cast,
          Gradient::Rule(grad::elementwise::cast);
    /// The value of `x`; no gradient passes.
    StopGradient = "stop_gradient" ("x") -> ("y")
        : Pure, Elementwise, Cost::Free, shape::same, movement::copy, Gradient::None;

    // ---- elementwise, more operands ------------------------------------------------------------

    /// `a + b`
    Add = "add" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::binary_number, elementwise::binary,
          Gradient::Rule(grad::elementwise::add);
    /// `a - b`
    Sub = "sub" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::binary_number, elementwise::binary,
          Gradient::Rule(grad::elementwise::sub);
    /// `a * b`
    Mul = "mul" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::binary_number, elementwise::binary,
          Gradient::Rule(grad::elementwise::mul);
    /// `a / b`; integers divide toward minus infinity, and by zero to zero.
    Div = "div" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(10), shape::binary_number, elementwise::binary,
          Gradient::Rule(grad::elementwise::div);
    /// `a - b * floor(a / b)` on integers; 0 where `b` is 0.
    Rem = "rem" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(10), shape::binary_integer, elementwise::binary,
          Gradient::None;
    /// The larger of two numbers; not-a-number when one of them is.
    Max = "max" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::binary_number, elementwise::binary,
          Gradient::Rule(grad::elementwise::extreme);
    /// The smaller of two numbers; not-a-number when one of them is.
    Min = "min" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::binary_number, elementwise::binary,
          Gradient::Rule(grad::elementwise::extreme);
    /// Whether the comparison holds.
    Compare = "compare" ("a", "b") { kind: Comparison } -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::compare, elementwise::compare,
          Gradient::None;
    /// `a and b`
    And = "and" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::Free, shape::binary_bool, elementwise::logic, Gradient::None;
    /// `a or b`
    Or = "or" ("a", "b") -> ("y")
        : Pure, Elementwise, Cost::Free, shape::binary_bool, elementwise::logic, Gradient::None;
    /// `a` where `condition`, else `b`.
    Select = "select" ("condition", "a", "b") -> ("y")
        : Pure, Elementwise, Cost::PerResult(1), shape::select, elementwise::select,
          Gradient::Rule(grad::elementwise::select);

    // ---- movement ------------------------------------------------------------------------------

    /// The same elements in row-major order under other dims.
    Reshape = "reshape" ("x") { shape: Vec<Dim> } -> ("y")
        : Pure, View, Cost::Free, shape::reshape, movement::copy,
          Gradient::Rule(grad::movement::reshape);
    /// Dim `i` of the result is dim `permutation[i]` of `x`.
    Transpose = "transpose" ("x") { permutation: Vec<u32> } -> ("y")
        : Pure, View, Cost::Free, shape::transpose, movement::transpose,
          Gradient::Rule(grad::movement::transpose);
    /// Dim `i` of `x` is dim `dims[i]` of the result (increasing); it repeats along the others, and
    /// along its own where `x` has size 1.
    Broadcast = "broadcast" ("x") { shape: Vec<Dim>, dims: Vec<u32> } -> ("y")
        : Pure, View, Cost::Free, shape::broadcast, movement::broadcast,
          Gradient::Rule(grad::movement::broadcast);
    /// Each slice along `axis` `times` times in a row: `y[i] = x[i / times]`.
    Repeat = "repeat" ("x") { axis: u32, times: Dim } -> ("y")
        : Pure, View, Cost::Free, shape::repeat, movement::repeat,
          Gradient::Rule(grad::movement::repeat);
    /// `x[start .. start + size]` along `axis`.
    Slice = "slice" ("x") { axis: u32, start: Dim, size: Dim } -> ("y")
        : Pure, View, Cost::Free, shape::slice, movement::slice,
          Gradient::Rule(grad::movement::slice);
    /// `x` with zeros before and after along `axis`.
    Pad = "pad" ("x") { axis: u32, before: Dim, after: Dim } -> ("y")
        : Pure, View, Cost::Free, shape::pad, movement::pad, Gradient::Rule(grad::movement::pad);
    /// The operands one after the other along `axis`.
    Concat = "concat" ("xs..") { axis: u32 } -> ("y")
        : Pure, View, Cost::Free, shape::concat, movement::concat,
          Gradient::Rule(grad::movement::concat);

    // ---- reductions and contractions -----------------------------------------------------------

    /// The sum over `axes` (increasing), which disappear. Accumulates in f32.
    ReduceSum = "reduce_sum" ("x") { axes: Vec<u32> } -> ("y")
        : Pure, Reduction, Cost::PerOperand(1), shape::reduce, movement::reduce,
          Gradient::Rule(grad::movement::reduce_sum);
    /// The maximum over `axes` (increasing), which disappear; minus infinity (the smallest
    /// i32) when they are empty.
    ReduceMax = "reduce_max" ("x") { axes: Vec<u32> } -> ("y")
        : Pure, Reduction, Cost::PerOperand(1), shape::reduce, movement::reduce,
          Gradient::Rule(grad::movement::reduce_max);
    /// `y[batch, free a, free b] = sum over contracted of a * b`. Accumulates in f32, then rounds
    /// once to `dtype`.
    Contract = "contract" ("a", "b") {
        /// Batch dims of `a`.
        a_batch: Vec<u32>,
        /// Batch dims of `b`, pairwise with those of `a`.
        b_batch: Vec<u32>,
        /// Contracted dims of `a`.
        a_contract: Vec<u32>,
        /// Contracted dims of `b`, pairwise with those of `a`.
        b_contract: Vec<u32>,
        /// Element type of the result.
        dtype: DType,
    } -> ("y")
        : Pure, Contraction, Cost::Custom(cost::contract), shape::contract, contract::contract,
          Gradient::Rule(grad::contraction::contract);
    /// `y[m] = w[groups[m]] x[m]` with `x[M, K]`, `w[G, N, K]` (`w[G, K, N]` when `transposed`);
    /// a row whose group is not from 0 to G-1 gives zeros. Accumulates in f32.
    GroupedContract = "grouped_contract" ("x", "w", "groups") { transposed: bool } -> ("y")
        : Pure, Contraction, Cost::Custom(cost::grouped_contract), shape::grouped_contract, contract::grouped_contract,
          Gradient::Rule(grad::contraction::grouped_contract);
    /// `w[g] = sum over rows m of group g of a[m] b[m]^T`, `[G, N, K]` from `a[M, N]`, `b[M, K]`.
    /// Accumulates in f32, then rounds once to `dtype`.
    GroupedOuter = "grouped_outer" ("a", "b", "groups") { count: Dim, dtype: DType } -> ("w")
        : Pure, Contraction, Cost::Custom(cost::grouped_outer), shape::grouped_outer, contract::grouped_outer,
          Gradient::Rule(grad::contraction::grouped_outer);

    // ---- indexing ------------------------------------------------------------------------------

    /// `y[i.., :] = table[index[i..], :]`; an index outside the table gives a zero row.
    Gather = "gather" ("table", "index") -> ("y")
        : Pure, Indexing, Cost::Free, shape::gather, indexing::gather,
          Gradient::Rule(grad::indexing::gather);
    /// `y[r, :] = sum of rows[i.., :] over the i with index[i..] = r`, for `count` rows; an index
    /// outside is dropped. Adds in the order of the rows, in f32.
    ScatterAdd = "scatter_add" ("index", "rows") { count: Dim } -> ("y")
        : Pure, Indexing, Cost::PerOperand(1), shape::scatter_add, indexing::scatter_add,
          Gradient::Rule(grad::indexing::scatter_add);
    /// The `k` largest along the last dim, falling; of equals the one with the smaller index first.
    TopK = "top_k" ("x") { k: Dim } -> ("values", "indices")
        : Pure, Indexing, Cost::PerOperand(4), shape::top_k, indexing::top_k,
          Gradient::Rule(grad::indexing::top_k);

    // ---- sequences -----------------------------------------------------------------------------

    /// Whether row `t` of `rows` is a valid row of a segment.
    RowValid = "row_valid" ("cu_seqlens", "cu_seqlens_padded") { rows: Dim } -> ("valid")
        : Pure, Sequence, Cost::Free, shape::row_valid, sequence::row_valid, Gradient::None;
    /// `y[t] = x[t + by]` where both are valid rows of one segment, else `fill`.
    SegmentShift = "segment_shift" ("x", "cu_seqlens", "cu_seqlens_padded") { by: i64, fill: Scalar } -> ("y")
        : Pure, Sequence, Cost::Free, shape::segment_shift, sequence::segment_shift,
          Gradient::Rule(grad::sequence::segment_shift);
    /// Causal depthwise convolution: `y[t, c] = sum over j < K of w[c, j] x[t - K + 1 + j, c]`, rows
    /// before the segment's first being zero. `x[T, C]`, `w[C, K]`.
    CausalConv1d = "causal_conv1d" ("x", "w", "cu_seqlens", "cu_seqlens_padded") -> ("y")
        : Pure, Sequence, Cost::Custom(cost::causal_conv1d), shape::causal_conv1d, sequence::causal_conv1d,
          Gradient::Rule(grad::sequence::causal_conv1d);
    /// Gradient of [`Op::CausalConv1d`] by `x`: `dx[t, c] = sum over j of w[c, j] dy[t + K - 1 - j, c]`.
    CausalConv1dInputGrad = "causal_conv1d_input_grad" ("dy", "w", "cu_seqlens", "cu_seqlens_padded") -> ("dx")
        : Pure, Sequence, Cost::Custom(cost::causal_conv1d), shape::causal_conv1d, sequence::causal_conv1d_input_grad,
          Gradient::Rule(grad::sequence::causal_conv1d_input_grad);
    /// Gradient of [`Op::CausalConv1d`] by `w`: `dw[c, j] = sum over t of dy[t, c] x[t - K + 1 + j, c]`.
    /// Accumulates in f32, then rounds once to `dtype`.
    CausalConv1dWeightGrad = "causal_conv1d_weight_grad" ("x", "dy", "cu_seqlens", "cu_seqlens_padded") { taps: Dim, dtype: DType } -> ("dw")
        : Pure, Sequence, Cost::Custom(cost::causal_conv1d_weight), shape::causal_conv1d_weight_grad, sequence::causal_conv1d_weight_grad,
          Gradient::Rule(grad::sequence::causal_conv1d_weight_grad);
    /// Gated delta rule, in f32, state `S[Dk, Dv]` a value head, zero (or `state[n, Hv, Dk, Dv]`) at
    /// a segment's start: `S' = e^g S`, `u = beta (v - S'^T k)`, `S = S' + k u^T`, `y = S^T q`.
    /// `q, k [T, Hk, Dk]`, `v [T, Hv, Dv]`, `g, beta [T, Hv]`; value head h uses key head
    /// `h / (Hv / Hk)`. Source of the maths: Yang et al., Gated Delta Networks, 2024.
    GatedDeltaRule = "gated_delta_rule" ("q", "k", "v", "g", "beta", "cu_seqlens", "cu_seqlens_padded", "state?") -> ("y", "final_state")
        : Pure, Sequence, Cost::Custom(cost::gated_delta_rule), shape::gated_delta_rule, sequence::gated_delta_rule,
          Gradient::Rule(grad::sequence::gated_delta_rule);
    /// Gradients of [`Op::GatedDeltaRule`], step by step from a segment's last row to its first,
    /// with `dS` the gradient of the state after the row (at the last row that of the final state,
    /// `dfinal_state` or zero):
    /// `dS += q dy^T`, `dq = S dy`, `du = dS^T k`, `dbeta = du . (v - r)`, `dv = beta du`,
    /// `dr = -beta du`, `dk = dS u + S' dr`, `dS' = dS + k dr^T`, `dg = <dS', S'>`, and for the row
    /// before `dS = e^g dS'`, where `r = S'^T k`. The gradients of `q` and `k` are summed over the
    /// value heads that share a key head; those of rows that are not valid are zero. A
    /// `dfinal_state` needs a `state`; `dstate` is there without one too.
    GatedDeltaRuleGrad = "gated_delta_rule_grad" ("q", "k", "v", "g", "beta", "dy", "cu_seqlens", "cu_seqlens_padded", "state?", "dfinal_state?") -> ("dq", "dk", "dv", "dg", "dbeta", "dstate")
        : Pure, Sequence, Cost::Custom(cost::gated_delta_rule_grad), shape::gated_delta_rule_grad, sequence::grad::gated_delta_rule,
          Gradient::Once;
    /// Softmax attention within each segment: scores `scale q k^T`, causal or not, row t seeing rows
    /// `t - window + 1 ..= t` only when `window` is given. `q [T, H, d]`, `k [S, Hk, d]`,
    /// `v [S, Hk, dv]`; query head h uses head `h / (H / Hk)`. Row i of `q` is row `rows[i]` of the
    /// pack of `S` rows, and without `rows`, where T = S, row i. `lse` is the log of the sum of the
    /// exponentials of a row's scores, f32, minus infinity on rows that are not valid.
    Attention = "attention" ("q", "k", "v", "cu_seqlens", "cu_seqlens_padded", "rows?") { scale: Scalar, causal: bool, window: Option<Dim> } -> ("y", "lse")
        : Pure, Sequence, Cost::Custom(cost::attention), shape::attention, sequence::attention,
          Gradient::Rule(grad::sequence::attention);
    /// Gradients of [`Op::Attention`], whose attributes it has. With the probabilities
    /// `p = e^(scale q k^T - lse)` and `dp = dy v^T`: `ds = p (dp - sum(dy y) + dlse)`,
    /// `dq = scale ds k`, `dk = scale ds^T q`, `dv = p^T dy`, the last two summed over the query
    /// heads that share a key head. Source: Dao, FlashAttention-2, 2023, for the form with `lse`.
    AttentionGrad = "attention_grad" ("q", "k", "v", "y", "lse", "dy", "cu_seqlens", "cu_seqlens_padded", "rows?", "dlse?") { scale: Scalar, causal: bool, window: Option<Dim> } -> ("dq", "dk", "dv")
        : Pure, Sequence, Cost::Custom(cost::attention_grad), shape::attention_grad, sequence::grad::attention,
          Gradient::Once;

    // ---- communication -------------------------------------------------------------------------

    // Types are those of one rank, and `ranks` of them exchange along `axis`; all of them run the same
    // ops in the same order. A dim that is divided is divided segment by segment. Gradients are those
    // of the sum of what all ranks make.

    /// The sum of all ranks' `x`, on each of them.
    AllReduce = "all_reduce" ("x") { axis: MeshAxis, ranks: u32 } -> ("y")
        : Collective, Communication, Cost::PerResult(1), shape::same, mesh::collective,
          Gradient::Rule(grad::mesh::all_reduce);
    /// All ranks' `x`, one after the other along `dim`.
    AllGather = "all_gather" ("x") { axis: MeshAxis, ranks: u32, dim: u32 } -> ("y")
        : Collective, Communication, Cost::Free, shape::all_gather, mesh::collective,
          Gradient::Rule(grad::mesh::all_gather);
    /// This rank's part along `dim` of the sum of all ranks' `x`.
    ReduceScatter = "reduce_scatter" ("x") { axis: MeshAxis, ranks: u32, dim: u32 } -> ("y")
        : Collective, Communication, Cost::PerResult(1), shape::reduce_scatter, mesh::collective,
          Gradient::Rule(grad::mesh::reduce_scatter);
    /// This rank's part along `split` of all ranks' `x`, one after the other along `gather`.
    AllToAll = "all_to_all" ("x") { axis: MeshAxis, ranks: u32, split: u32, gather: u32 } -> ("y")
        : Collective, Communication, Cost::Free, shape::all_to_all, mesh::collective,
          Gradient::Rule(grad::mesh::all_to_all);
    /// This rank's part along `dim` of an `x` that all ranks have.
    Shard = "shard" ("x") { axis: MeshAxis, ranks: u32, dim: u32 } -> ("y")
        : Pure, Communication, Cost::Free, shape::shard, mesh::collective,
          Gradient::Rule(grad::mesh::shard);
    /// `x` in this rank's part along `dim`, and zeros in the others.
    Unshard = "unshard" ("x") { axis: MeshAxis, ranks: u32, dim: u32 } -> ("y")
        : Pure, Communication, Cost::Free, shape::unshard, mesh::collective,
          Gradient::Rule(grad::mesh::unshard);
}
