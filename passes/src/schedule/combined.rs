//! One layer's forward beside another's backward, on two streams: `combined-1f1b` by the clock.
//!
//! A layer of experts is four nodes: `attn` (all up to the router), `dispatch` and `combine`
//! (exchanges, on a stream of their own) and `mlp` (the experts). A pair of a forward and a backward
//! is issued layer by layer, the layers of the backward from the last to the first:
//!
//! ```text
//! b.combine | f.attn | b.mlp | f.dispatch | b.mlp.wgrad | b.dispatch | f.mlp | f.combine | b.attn | b.attn.wgrad
//! ```
//!
//! so that every exchange of one runs beside work of the other. A stream runs its nodes in the order
//! of issue, and a node waits for the one before it of the same direction. Where a side has more
//! layers than the other, the rest runs alone. Source of the order: Megatron-LM's combined 1F1B.

use super::Phase;

/// Times of a layer, forward and backward, in one unit. A layer without experts has exchanges of no
/// time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Layer {
    /// Up to the router.
    pub attn: [f64; 2],
    /// Of the backward's `attn`, the gradients of weights.
    pub attn_weights: f64,
    /// Rows to their experts.
    pub dispatch: [f64; 2],
    /// The experts.
    pub mlp: [f64; 2],
    /// Of the backward's `mlp`, the gradients of weights.
    pub mlp_weights: f64,
    /// Rows back from their experts.
    pub combine: [f64; 2],
}

impl Layer {
    /// All of it one after the other.
    pub fn alone(&self, way: usize) -> f64 {
        self.attn[way] + self.mlp[way] + self.exchange(way)
    }

    /// Its exchanges.
    pub fn exchange(&self, way: usize) -> f64 {
        self.dispatch[way] + self.combine[way]
    }
}

/// When the two halves of a pair are done, from its start.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pair {
    /// The forward.
    pub forward: f64,
    /// The backward, gradients of weights included.
    pub backward: f64,
}

/// The two streams of a device, and when the last node of each direction is done.
#[derive(Default)]
struct Streams {
    compute: f64,
    exchange: f64,
    forward: f64,
    backward: f64,
}

impl Streams {
    fn run(&mut self, phase: Phase, exchanges: bool, time: f64) {
        let stream = if exchanges { &mut self.exchange } else { &mut self.compute };
        let before = match phase {
            Phase::F => &mut self.forward,
            Phase::B | Phase::W => &mut self.backward,
        };
        let end = stream.max(*before) + time;
        *stream = end;
        // Nothing waits for gradients of weights.
        if phase != Phase::W {
            *before = end;
        }
    }
}

/// The times of a forward through some layers beside a backward through others, both in the order
/// of the model; `others` is the work of the two chunks that is in no layer, forward and backward.
pub fn pair(forward: &[Layer], backward: &[Layer], others: [f64; 2]) -> Pair {
    let mut s = Streams::default();
    // The head comes before the layers of a backward, the embedding before those of a forward.
    s.run(Phase::F, false, others[0]);
    s.run(Phase::B, false, others[1]);
    let none = Layer::default();
    for i in 0..forward.len().max(backward.len()) {
        let f = forward.get(i).unwrap_or(&none);
        let b = backward.len().checked_sub(i + 1).and_then(|i| backward.get(i)).unwrap_or(&none);
        s.run(Phase::B, true, b.combine[1]);
        s.run(Phase::F, false, f.attn[0]);
        s.run(Phase::B, false, b.mlp[1] - b.mlp_weights);
        s.run(Phase::F, true, f.dispatch[0]);
        s.run(Phase::W, false, b.mlp_weights);
        s.run(Phase::B, true, b.dispatch[1]);
        s.run(Phase::F, false, f.mlp[0]);
        s.run(Phase::F, true, f.combine[0]);
        s.run(Phase::B, false, b.attn[1] - b.attn_weights);
        s.run(Phase::W, false, b.attn_weights);
    }
    Pair { forward: s.forward, backward: s.backward.max(s.compute) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer() -> Layer {
        Layer {
            attn: [2.0, 4.0],
            attn_weights: 2.0,
            dispatch: [1.0, 1.0],
            mlp: [2.0, 4.0],
            mlp_weights: 2.0,
            combine: [1.0, 1.0],
        }
    }

    /// By hand: combine beside attn, dispatch beside mlp of the other, 12 of work, no gap.
    #[test]
    fn exchanges_hide_behind_work() {
        let one = layer();
        let p = pair(&[one], &[one], [0.0; 2]);
        assert_eq!(p.backward, 12.0);
        // f.attn to 2, b.mlp to 4, wgrad to 6, f.mlp to 8, f.combine to 9.
        assert_eq!(p.forward, 9.0);
        let all = one.alone(0) + one.alone(1);
        assert_eq!(all - p.backward, one.exchange(0) + one.exchange(1));
    }

    #[test]
    fn layers_without_a_partner_run_alone() {
        let one = layer();
        let p = pair(&[one; 3], &[], [0.0; 2]);
        assert_eq!(p.forward, 3.0 * one.alone(0));
        let p = pair(&[], &[one; 2], [0.0, 1.0]);
        // The gradients of weights of one layer run beside the exchange of the next.
        assert_eq!(p.backward, 1.0 + 2.0 * one.alone(1) - 1.0 - 1.0 - 1.0);
        let dense = Layer { dispatch: [0.0; 2], combine: [0.0; 2], ..one };
        assert_eq!(pair(&[dense], &[dense], [0.0; 2]).backward, 12.0);
    }
}
