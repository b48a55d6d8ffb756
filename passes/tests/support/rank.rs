//! One rank of a joint program: its steps, and numbers for its buffers.

use vlmc_artifact::memory::MemoryPlan;
use vlmc_artifact::{Buffer, Step};
use vlmc_ir::eval::{Sizes, Tensor};
use vlmc_ir::graph::{OutputKind, Program};
use vlmc_ir::testing::Random;
use vlmc_ir::ty::{DType, Ty};
use vlmc_passes::memory::Rank;
use vlmc_runtime::arena::{Job, Outcome, Storage, execute};

/// The steps of a joint program for some microbatches: load, totals, run, accumulate.
pub fn steps(joint: &Program, microbatches: usize) -> Vec<Step> {
    let main = joint.main().unwrap();
    let mut steps: Vec<Step> = (0..microbatches).map(|m| Step::Load { microbatch: m }).collect();
    for m in 0..microbatches {
        let inputs = main.inputs.iter().map(|i| (i.name.to_string(), buffer(m, &i.name)));
        let (mut outputs, mut params) = (vec![], vec![]);
        for (i, o) in main.outputs.iter().enumerate() {
            let name = o.name.as_deref().map_or(i.to_string(), str::to_string);
            match o.kind {
                OutputKind::Value => outputs.push(Buffer::LossSum(m, name)),
                OutputKind::Loss { .. } => {
                    outputs.push(Buffer::LossSum(m, name.clone()));
                    outputs.push(Buffer::LossCount(m, name));
                }
                OutputKind::Gradient => {
                    outputs.push(Buffer::LocalGrad(name.clone()));
                    params.push(name);
                }
            }
        }
        steps.push(Step::Run {
            program: "step".to_string(),
            microbatch: Some(m),
            inputs: inputs.collect(),
            outputs,
        });
        steps.push(Step::Accumulate { params });
    }
    steps
}

fn buffer(m: usize, name: &str) -> Buffer {
    Buffer::Input(m, name.to_string())
}

/// A joint program on one rank.
pub struct One {
    pub program: Program,
    pub steps: Vec<Step>,
    pub sizes: Sizes,
}

impl One {
    pub fn new(program: Program, microbatches: usize, sizes: Sizes) -> One {
        One { steps: steps(&program, microbatches), program, sizes }
    }

    pub fn with<T>(&self, f: impl FnOnce(&Rank<'_>) -> T) -> T {
        let programs = [("step", &self.program)];
        f(&Rank { programs: &programs, steps: &self.steps, sizes: &self.sizes })
    }

    pub fn plan(&self, effort: usize) -> MemoryPlan {
        self.with(|r| vlmc_passes::memory::plan(r, effort)).unwrap()
    }

    pub fn faults(&self, plan: &MemoryPlan) -> Vec<vlmc_passes::check::memory::Fault> {
        let programs = [("step", &self.program)];
        let subject = vlmc_passes::check::memory::Subject {
            programs: &programs,
            steps: &self.steps,
            sizes: &self.sizes,
        };
        vlmc_passes::check::memory::check(&subject, plan)
    }

    pub fn execute(&self, plan: &MemoryPlan, storage: Storage) -> anyhow::Result<Outcome> {
        let programs = [("step", &self.program)];
        let job = Job { programs: &programs, steps: &self.steps, sizes: &self.sizes, plan };
        execute(&job, storage, &|b| self.value(b))
    }

    /// A value for a buffer, which depends on its name alone.
    pub fn value(&self, b: &Buffer) -> anyhow::Result<Tensor<f32>> {
        let ty = match b {
            Buffer::Input(_, name) => {
                let main = self.program.main().unwrap();
                main.inputs.iter().find(|i| *i.name == **name).map(|i| i.ty.clone())
            }
            Buffer::Param(name) => {
                let all = self.program.parameters();
                all.iter().find(|(n, _)| n == name).map(|(_, p)| p.ty.clone())
            }
            _ => None,
        };
        let ty = ty.ok_or_else(|| anyhow::anyhow!("no value for {b:?}"))?;
        self.random(&format!("{b:?}"), &ty)
    }

    fn random(&self, name: &str, ty: &Ty) -> anyhow::Result<Tensor<f32>> {
        let dims = self.sizes.eval_all(&ty.dims)?;
        let n: usize = dims.iter().product();
        let seed = name.bytes().fold(7u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut rng = Random::new(seed);
        Ok(match ty.dtype {
            // Boundaries of one document that fills everything.
            DType::I32 if name.contains("cu_") => {
                let docs = n - 1;
                let rows = self.sizes.get(&vlmc_ir::dim::Symbol::new("T")).unwrap();
                Tensor::ints(dims, (0..n).map(|i| (rows * i / docs) as i64).collect())?
            }
            DType::I32 => Tensor::ints(dims, (0..n).map(|_| rng.below(6) as i64).collect())?,
            DType::Bool => Tensor::bools(dims, (0..n).map(|_| rng.chance(50)).collect())?,
            float => {
                let values: Vec<f64> = (0..n).map(|_| rng.real()).collect();
                let values = values.iter().map(|v| {
                    let v = *v as f32;
                    if float == DType::Bf16 { vlmc_ir::eval::Real::round_bf16(v) } else { v }
                });
                Tensor::floats(float, dims, values.collect())?
            }
        })
    }
}
