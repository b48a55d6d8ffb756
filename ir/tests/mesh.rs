//! Exchanges of several ranks against values worked out by hand.
#![allow(missing_docs, clippy::unwrap_used)]

use vlmc_ir::eval::mesh::combine;
use vlmc_ir::eval::{Shape, Sizes, Tensor};
use vlmc_ir::ops::Op;
use vlmc_ir::text::cursor::Cursor;
use vlmc_ir::ty::{DType, Ty};

/// What each rank gets of `parts`, each of type `ty`.
fn exchange(op: &str, ty: &str, parts: &[&[f64]]) -> Vec<Vec<f64>> {
    let (name, attributes) = op.split_once(' ').unwrap();
    let op = Op::parse(name, &mut Cursor::new(attributes)).unwrap().unwrap();
    let ty: Ty = Cursor::new(ty).ty().unwrap();
    let result = op.infer(std::slice::from_ref(&ty)).unwrap().remove(0);
    let sizes = Sizes::default();
    let shape = Shape { dtype: DType::F32, dims: sizes.eval_all(&result.dims).unwrap() };
    let dims = sizes.eval_all(&ty.dims).unwrap();
    let parts: Vec<Tensor<f64>> =
        parts.iter().map(|p| Tensor::from_f64(dims.clone(), p).unwrap()).collect();
    let parts: Vec<&Tensor<f64>> = parts.iter().collect();
    (0..parts.len())
        .map(|at| {
            let t = combine(&op, &ty, &shape, &parts, at, &sizes).unwrap();
            assert_eq!(t.dims, shape.dims);
            t.to_f64()
        })
        .collect()
}

#[test]
fn sums_and_rows() {
    let (a, b) = (&[1., 2., 3., 4.][..], &[10., 20., 30., 40.][..]);
    let got = exchange("all_reduce {axis = cp, ranks = 2}", "f32[2, 2]", &[a, b]);
    assert_eq!(got, vec![vec![11., 22., 33., 44.]; 2]);
    let got = exchange("all_gather {axis = cp, ranks = 2, dim = 0}", "f32[2, 2]", &[a, b]);
    assert_eq!(got, vec![vec![1., 2., 3., 4., 10., 20., 30., 40.]; 2]);
    let got = exchange("all_gather {axis = cp, ranks = 2, dim = 1}", "f32[2, 2]", &[a, b]);
    assert_eq!(got, vec![vec![1., 2., 10., 20., 3., 4., 30., 40.]; 2]);
    let got = exchange("reduce_scatter {axis = cp, ranks = 2, dim = 1}", "f32[2, 2]", &[a, b]);
    assert_eq!(got, [vec![11., 33.], vec![22., 44.]]);
    let got = exchange("shard {axis = cp, ranks = 2, dim = 0}", "f32[2, 2]", &[a, a]);
    assert_eq!(got, [vec![1., 2.], vec![3., 4.]]);
    let got = exchange("unshard {axis = cp, ranks = 2, dim = 0}", "f32[1, 2]", &[&a[..2], &b[..2]]);
    assert_eq!(got, [vec![1., 2., 0., 0.], vec![0., 0., 10., 20.]]);
}

/// Each segment is divided by itself: a rank gets its heads of `q` and its heads of `k`.
#[test]
fn segments_are_divided_one_by_one() {
    let ty = "f32[1, q: 4 + k: 2]";
    let (a, b) = (&[1., 2., 3., 4., 5., 6.][..], &[10., 20., 30., 40., 50., 60.][..]);
    let there = exchange("all_to_all {axis = cp, ranks = 2, split = 1, gather = 0}", ty, &[a, b]);
    assert_eq!(there[0], [1., 2., 5., 10., 20., 50.]);
    assert_eq!(there[1], [3., 4., 6., 30., 40., 60.]);
    let parts: Vec<&[f64]> = there.iter().map(Vec::as_slice).collect();
    let back = exchange(
        "all_to_all {axis = cp, ranks = 2, split = 0, gather = 1}",
        "f32[2, q: 2 + k: 1]",
        &parts,
    );
    assert_eq!(back, [a, b]);
}

/// The adjoint of an exchange is the exchange that its gradient rule gives: `<A x, y> = <x, A' y>`
/// over all ranks.
#[test]
fn gradients_are_adjoint() {
    let pairs = [
        ("all_reduce {axis = cp, ranks = 3}", "f32[2, 3]", "all_reduce {axis = cp, ranks = 3}"),
        (
            "all_gather {axis = cp, ranks = 3, dim = 1}",
            "f32[2, a: 1 + b: 2]",
            "reduce_scatter {axis = cp, ranks = 3, dim = 1}",
        ),
        (
            "all_to_all {axis = cp, ranks = 3, split = 1, gather = 0}",
            "f32[2, a: 3 + b: 6]",
            "all_to_all {axis = cp, ranks = 3, split = 0, gather = 1}",
        ),
        (
            "unshard {axis = cp, ranks = 3, dim = 0}",
            "f32[2, 2]",
            "shard {axis = cp, ranks = 3, dim = 0}",
        ),
    ];
    for (op, ty, back) in pairs {
        let parsed: Ty = Cursor::new(ty).ty().unwrap();
        let (name, attributes) = op.split_once(' ').unwrap();
        let o = Op::parse(name, &mut Cursor::new(attributes)).unwrap().unwrap();
        let result = o.infer(std::slice::from_ref(&parsed)).unwrap().remove(0);
        let count = |t: &Ty| t.elements().as_constant().unwrap() as usize;
        let fill = |n: usize, seed: usize| -> Vec<f64> {
            (0..n).map(|i| ((i * 7 + seed * 13) % 11) as f64 - 5.0).collect()
        };
        let x: Vec<Vec<f64>> = (0..3).map(|r| fill(count(&parsed), r)).collect();
        let y: Vec<Vec<f64>> = (0..3).map(|r| fill(count(&result), r + 5)).collect();
        let slices = |v: &[Vec<f64>]| -> Vec<Vec<f64>> { v.to_vec() };
        let refs = |v: &[Vec<f64>], op: &str, ty: &str| {
            exchange(op, ty, &v.iter().map(Vec::as_slice).collect::<Vec<_>>())
        };
        let ax = refs(&slices(&x), op, ty);
        let ay = refs(&slices(&y), back, &result.to_string());
        let dot = |a: &[Vec<f64>], b: &[Vec<f64>]| -> f64 {
            a.iter().flatten().zip(b.iter().flatten()).map(|(a, b)| a * b).sum()
        };
        assert_eq!(dot(&ax, &y), dot(&x, &ay), "{op}");
    }
}
