//! Random types, dims and values for the generator.

use super::Random;
use crate::dim::{Dim, Poly};
use crate::graph::{Function, HostCall, Init, Param, Value};
use crate::ops::{Op, Scalar};
use crate::ty::{DType, Ty};

/// A function being made.
pub(super) struct Builder<'r> {
    pub(super) f: Function,
    pub(super) rng: &'r mut Random,
    /// Whether it is the last function, whose inputs come from the host.
    pub(super) is_main: bool,
    /// Names of parameters differ between functions.
    pub(super) tag: usize,
}

fn symbol(name: &str) -> Poly {
    Poly::symbol(name)
}

impl Builder<'_> {
    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let i = self.rng.below(from.len());
        from[i].clone()
    }

    /// A constant from 1 to 4.
    pub(super) fn small(&mut self) -> i64 {
        self.rng.below(4) as i64 + 1
    }

    pub(super) fn dim(&mut self) -> Dim {
        let (k, v) = (symbol("K"), symbol("V"));
        match self.rng.below(12) {
            0 => Dim::symbol("T"),
            1 => Dim::symbol("D"),
            2 => Dim::new(symbol("docs").add(&1.into())),
            3 => Dim::new(k.mul(&2.into()).add(&v)),
            4 => Dim::from_segments(vec![("q".into(), k.mul(&2.into())), ("v".into(), v)]),
            5 => Dim::from_segments(vec![("a".into(), k.add(&1.into())), ("b".into(), v)]),
            6 => Dim::new(symbol("H").div(&2.into()).unwrap_or_default()),
            7 => Dim::new(k.mul(&v).sub(&1.into())),
            _ => Dim::from(self.small()),
        }
    }

    pub(super) fn dims(&mut self, most: usize) -> Vec<Dim> {
        (0..self.rng.below(most + 1)).map(|_| self.dim()).collect()
    }

    pub(super) fn float(&mut self) -> DType {
        self.pick(&[DType::Bf16, DType::F32])
    }

    pub(super) fn scalar(&mut self) -> Scalar {
        let real = self.rng.real();
        Scalar(self.pick(&[0.0, -0.0, 1.0, 1e-6, -2.5, 1e300, real, f64::INFINITY, f64::NAN]))
    }

    /// A type of any shape.
    pub(super) fn elementwise_ty(&mut self, dtype: DType) -> Ty {
        Ty::new(dtype, self.dims(3))
    }

    /// A value of this type: one that exists, or a new input, parameter or constant.
    pub(super) fn value(&mut self, ty: &Ty) -> Value {
        let mut have = vec![];
        for id in self.f.node_ids() {
            for (result, t) in self.f.node(id).tys.iter().enumerate() {
                if t == ty {
                    have.push(Value { node: id, result: result as u32 });
                }
            }
        }
        if !have.is_empty() && self.rng.chance(70) {
            return self.pick(&have);
        }
        let constant = ty.dims.iter().all(|d| d.size().as_constant().is_some());
        match self.rng.below(3) {
            0 if constant && ty.dtype.is_float() => self.param(ty),
            1 => {
                let value = if ty.dtype.is_float() { self.scalar() } else { Scalar(1.0) };
                let op = Op::Constant { value, dtype: ty.dtype, shape: ty.dims.clone() };
                self.f.push_node(op, vec![], vec![ty.clone()], None).into()
            }
            _ => self.input(&format!("i{}", self.f.inputs.len()), ty),
        }
    }

    pub(super) fn input(&mut self, name: &str, ty: &Ty) -> Value {
        let from = (self.is_main && self.rng.chance(50)).then(|| HostCall {
            function: "make".to_string(),
            arguments: vec![("n".to_string(), self.rng.below(9) as i64 - 4)],
        });
        self.f.add_input(name, ty.clone(), from)
    }

    fn param(&mut self, ty: &Ty) -> Value {
        let name = format!("p{}", self.f.params.len());
        let mut each = vec![];
        if ty.rank() > 1 && self.rng.chance(30) {
            each = (0..1 + self.rng.below(2)).map(|i| format!("experts.{{e}}.part{i}")).collect();
        }
        let (a, b) = (self.rng.real(), self.rng.real());
        let init = self.pick(&[
            Init::Constant(a),
            Init::Normal(a.abs()),
            Init::Uniform(a.min(b), a.max(b)),
            Init::LogUniform(0.01, 16.0),
        ]);
        self.f.add_param(Param {
            key: format!("w{}.{name}", self.tag),
            name: name.into(),
            each,
            ty: ty.clone(),
            init,
            decay: self.rng.chance(70),
        })
    }

    /// The two boundary arrays of the function.
    pub(super) fn boundaries(&mut self) -> [Value; 2] {
        ["cu", "padded"].map(|name| self.boundary(name))
    }

    pub(super) fn boundary(&mut self, name: &str) -> Value {
        let found = self.f.node_ids().find(|id| match &self.f.node(*id).op {
            Op::Input { index } => &*self.f.inputs[*index as usize].name == name,
            _ => false,
        });
        let ty = Ty::new(DType::I32, vec![Dim::new(symbol("docs").add(&1.into()))]);
        found.map_or_else(|| self.input(name, &ty), Value::from)
    }

    pub(super) fn value_of(&mut self, dtype: DType, dims: &[Dim]) -> Value {
        self.value(&Ty::new(dtype, dims.to_vec()))
    }
}
