//! Where an axis of one shape lies in another of the same elements.

use vlmc_ir::dim::{Dim, Poly, product};

/// `start .. start + size` along `axis` of a reshaped value, as a range along an axis of what was
/// reshaped: that axis, its start and its size. `None` when the elements lie in no such range.
pub(super) fn range_before_reshape(
    from: &[Dim],
    to: &[Dim],
    axis: u32,
    start: &Poly,
    size: &Poly,
) -> Option<(u32, Poly, Poly)> {
    let a = axis as usize;
    let (head, tail) = (product(&to[..a]), product(&to[a + 1..]));
    let whole = to[a].size().mul(&tail);
    for j in 0..from.len() {
        let inner = product(&from[j + 1..]);
        if product(&from[..j]) != head || from[j].size().mul(&inner) != whole {
            continue;
        }
        // An axis of one element in front of the real one.
        if from[j].size().is(1) && !to[a].size().is(1) {
            continue;
        }
        if let Some(q) = tail.div_evident(&inner) {
            return Some((j as u32, start.mul(&q), size.mul(&q)));
        }
        let q = inner.div_evident(&tail)?;
        let (start, size) = (start.div_evident(&q)?, size.div_evident(&q)?);
        return Some((j as u32, start, size));
    }
    None
}

/// The axis of `to` in which axis `axis` of `from` is the outermost part, if there is one: elements
/// that differ in it alone, and in all inner ones, lie together in both shapes.
pub(super) fn axis_after_reshape(from: &[Dim], to: &[Dim], axis: u32) -> Option<u32> {
    let a = axis as usize;
    let head = product(&from[..a]);
    let rest = product(&from[a..]);
    let inner = product(&from[a + 1..]);
    let fits = |j: &usize| {
        // An axis of one element in front of the real one.
        let real = from[a].size().is(1) || !to[*j].size().is(1);
        real && product(&to[..*j]) == head
            && product(&to[*j..]) == rest
            && inner.div_evident(&product(&to[j + 1..])).is_some()
    };
    (0..to.len()).find(fits).map(|j| j as u32)
}

/// Pairs the axes of two shapes of the same elements that differ only in axes of one element:
/// for each axis of `from` the axis of `to`, or `None` for an axis of one element.
pub(super) fn unsqueezed(from: &[Dim], to: &[Dim]) -> Option<Vec<Option<u32>>> {
    let mut targets = (0..to.len()).filter(|j| !to[*j].size().is(1));
    let mut out = vec![];
    for d in from {
        if d.size().is(1) {
            out.push(None);
            continue;
        }
        let j = targets.next()?;
        if !to[j].same_size(d) {
            return None;
        }
        out.push(Some(j as u32));
    }
    targets.next().is_none().then_some(out)
}

/// `dims` with another size along `axis`.
pub(super) fn with_size(dims: &[Dim], axis: u32, size: &Poly) -> Vec<Dim> {
    let mut out = dims.to_vec();
    out[axis as usize] = Dim::new(size.clone());
    out
}
