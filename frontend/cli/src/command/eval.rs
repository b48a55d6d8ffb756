//! `vlmc eval`

use super::{Chosen, SpecArgs};
use crate::Context;
use crate::ui::{Done, Stop, at_flag, plural, put, table, thousands};
use clap::ValueEnum;
use std::collections::BTreeMap;
use vlmc::eval::{Evaluated, Inputs, Precision, Request, Tensors};
use vlmc::parameters::{Parameter, parameters};
use vlmc::weights::{Values, Weights};
use vlmc_data::batch::{Batch, BatchFiles};
use vlmc_data::checkpoint::Mismatch;
use vlmc_data::safetensors::{TensorFile, write_file};
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_frontend::diag::{Code, Diag, nearest};
use vlmc_frontend::elab::{self, Library};
use vlmc_ir::graph::Program;
use vlmc_runtime::clusters::Clusters;

/// Numbers to compute with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Dtype {
    /// The model dtype is f32.
    F32,
    /// The model dtype is bf16: its values are rounded, arithmetic is f32.
    Bf16,
    /// Everything in f64.
    F64,
}

/// What to evaluate on what.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Inputs are called `in.X` and `param.X`, results `out.X`; results of a function \
                        that has several are out.0, out.1 and so on. A Sequence `seq` is in.seq.cu_seqlens, \
                        in.seq.cu_seqlens_padded and in.seq.positions. Of a model the losses are \
                        out.NAME_loss (sum / count) and out.loss (their weighted sum)."
)]
pub struct Args {
    /// The model of a spec, or one function: SPEC::function, SPEC::Module or SPEC::Module.function
    /// [default: `spec` of the settings]
    #[arg(value_name = "SPEC[::FUNCTION]")]
    target: Option<String>,
    /// The variant [default: `variant` of the settings, when the spec is theirs]
    #[arg(long, value_name = "NAME")]
    variant: Option<String>,
    /// Set a field of the configuration; may repeat [default: none]
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// A tensor file with in.X, and param.X if it likes [default: none; this or --batch]
    #[arg(
        long,
        value_name = "X.safetensors",
        conflicts_with = "batch",
        required_unless_present = "batch"
    )]
    inputs: Option<String>,
    /// A batch file, a folder or a pattern of them: microbatches for the model [default: none; this or
    /// --inputs]
    #[arg(long, value_name = "B.safetensors")]
    batch: Option<String>,
    /// Only this microbatch of the batch, from 0 [default: all]
    #[arg(long, value_name = "N", requires = "batch")]
    microbatch: Option<usize>,
    /// A checkpoint file or folder, or init:SEED [default: param.X of the inputs]
    #[arg(long, value_name = "W|init:SEED")]
    weights: Option<String>,
    /// Write the results here [default: nowhere]
    #[arg(short, long, value_name = "Y.safetensors")]
    output: Option<String>,
    /// Numbers to compute with [default: `dtype` of the settings, f32]
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
    /// An argument of the function or its module that is no tensor; may repeat [default: none]
    #[arg(long = "arg", value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// Gradients as well: of the losses of a model, or for `dout.X` of the inputs [default: off]
    #[arg(long)]
    grad: bool,
    /// Fuses row arithmetic and runs it by kernels generated for this machine; in f32 or bf16
    /// [default: off]
    #[arg(long)]
    fused: bool,
}

/// Runs it.
pub fn run(c: &mut Context, args: Args) -> Done {
    if let Some(dtype) = args.dtype {
        let source = vlmc::settings::Source::Flag("--dtype".into());
        c.merged.set("dtype", format!("{dtype:?}").to_lowercase(), source);
    }
    let dtype = super::choice::<Dtype>(&c.merged, "dtype").map_err(|d| c.ui.fail(*d))?;
    let precision = match dtype {
        Dtype::F32 => Precision::F32,
        Dtype::Bf16 => Precision::Bf16,
        Dtype::F64 => Precision::F64,
    };
    let (spec, function) =
        match args.target.as_deref().map(|t| t.split_once("::").unwrap_or((t, ""))) {
            Some((spec, function)) => (Some(spec), Some(function).filter(|f| !f.is_empty())),
            None => (None, None),
        };
    let spec_args = SpecArgs {
        spec: spec.filter(|s| !s.is_empty()).map(String::from),
        variant: args.variant.clone(),
        set: args.set.clone(),
    };
    let chosen = spec_args.choose(c)?;
    let named = match &args.inputs {
        Some(path) => Some(tensors(c, path)?),
        None => None,
    };
    let weights = match &args.weights {
        Some(text) => Some(Weights::open(text).map_err(|e| {
            let message = format!("cannot use the weights: {e:#}");
            c.ui.fail(
                at_flag(Code::BadWeights, message, "--weights", text, "these weights")
                    .help("name a safetensors file, a folder of them, or `init:SEED`"),
            )
        })?),
        None => None,
    };
    let lib = super::load_good(c, &chosen.spec)?;
    // Errors without a variant are the same and better told: they name sizes, not numbers.
    c.ui.report(&elab::check(&lib), &lib.sources)?;
    let mut program = lower(c, &lib, &chosen, function, &args, precision, named.as_ref())?;
    if args.grad {
        // Of the inputs of a model only functions' are asked for: a batch is data.
        let wanted = if function.is_some() { vlmc::eval::float_inputs(&program) } else { vec![] };
        program = vlmc::eval::with_gradients(&program, &wanted).map_err(|e| {
            let diag = Diag::error(Code::CannotCompile, format!("{e:#}"));
            c.ui.fail(diag.help("gradients need a float result, and ops that have a gradient"))
        })?;
    }
    let all = parameters(&program);
    let given = |p: &Parameter<'_>| {
        named.as_ref().is_some_and(|n| n.contains_key(&format!("param.{}", p.name)))
    };
    let asked: Vec<Parameter<'_>> = all.iter().filter(|p| !given(p)).cloned().collect();
    fits(c, weights.as_ref(), &asked, &args)?;
    let values = Values::new(&all, weights.as_ref());
    let param = |name: &str| match named.as_ref().and_then(|n| n.get(&format!("param.{name}"))) {
        Some(t) => Ok(t.clone()),
        None => values.get(name),
    };
    let mut inputs = Tensors::new();
    if let Some(named) = &named {
        inputs = section(named, "in.");
        if args.grad {
            let given = named.iter().filter(|(n, _)| n.starts_with("dout."));
            inputs.extend(given.map(|(n, t)| (n.clone(), t.clone())));
            vlmc::eval::unit_gradients(&program, &mut inputs)
                .map_err(|e| c.ui.fail(Diag::error(Code::BadInput, format!("{e:#}"))))?;
        }
        unknown_inputs(c, &program, &inputs)?;
        outside_vocabulary(c, &program, &inputs)?;
    }
    let queue = match &args.batch {
        Some(path) => microbatches(c, &args, path)?,
        None => vec![],
    };
    let total: i64 = all.iter().filter_map(Parameter::count).sum();
    put(&format!("{} parameters\n", thousands(total)))?;
    let fused = if args.fused { Some(fuse(c, &program, precision)?) } else { None };
    let run = Run {
        program: fused.as_ref().map_or(&program, |f| &f.0),
        precision,
        kernels: fused.as_ref().map(|f| &f.1),
        vocabulary: vlmc::compile::vocabulary(&program).and_then(|v| usize::try_from(v).ok()),
    };
    match &named {
        Some(_) => {
            let out = evaluate(c, run, &Inputs::Named(&inputs), &param, "--inputs")?;
            put(&losses(&out))?;
            if function.is_some() {
                put(&shapes(&out))?;
            }
            save(c, &args, &out)
        }
        None => batches(c, &args, &queue, run, &param),
    }
}

fn tensors(c: &Context, path: &str) -> Done<Tensors> {
    let read = || -> Result<Tensors, vlmc_data::safetensors::FileError> {
        let file = TensorFile::open(path)?;
        let names: Vec<String> = file.names().map(String::from).collect();
        names.into_iter().map(|n| file.read(&n).map(|t| (n, t))).collect()
    };
    read().map_err(|e| {
        let diag = at_flag(Code::BadTensorFile, e.to_string(), "--inputs", path, "this file");
        c.ui.fail(diag.help("write it with any safetensors library, with names such as `in.x`"))
    })
}

fn section(named: &Tensors, prefix: &str) -> Tensors {
    let part = named.iter().filter_map(|(n, t)| Some((n.strip_prefix(prefix)?.into(), t.clone())));
    part.collect()
}

#[allow(clippy::too_many_arguments)]
fn lower(
    c: &Context,
    lib: &Library,
    chosen: &Chosen,
    function: Option<&str>,
    args: &Args,
    precision: Precision,
    named: Option<&Tensors>,
) -> Done<Program> {
    let mut list = vec![];
    for text in &args.arg {
        match text.split_once('=') {
            Some((k, v)) => list.push((k.to_string(), v.to_string())),
            None => {
                let message = format!("`{text}` gives nothing");
                let diag = at_flag(Code::BadSetting, message, "--arg", text, "has no `=`");
                return Err(c.ui.fail(diag.help("write `--arg name=value`")));
            }
        }
    }
    let inputs = named.map(|n| section(n, "in.")).unwrap_or_default();
    let request = Request {
        function,
        args: list,
        variant: chosen.variant.as_deref(),
        settings: chosen.settings.clone(),
        shapes: inputs.iter().map(|(n, t)| (n.clone(), t.shape.clone())).collect(),
        precision,
    };
    let lowered = vlmc::eval::program(lib, &request);
    c.ui.report(&lowered.diags, &lib.sources)?;
    lowered.program.ok_or(Stop::Told)
}

/// Checks the weights before anything is computed.
fn fits(c: &Context, weights: Option<&Weights>, asked: &[Parameter<'_>], args: &Args) -> Done {
    let Some(weights) = weights else {
        let Some(first) = asked.first() else { return Ok(()) };
        let n = asked.len();
        let more = if n > 1 { format!(" and {} more", n - 1) } else { String::new() };
        let message = format!("nothing gives the parameter `{}`{more}", first.name);
        let diag = Diag::error(Code::BadWeights, message);
        let help = format!(
            "give `--weights init:1`, a checkpoint, or `param.{}` in the inputs",
            first.name
        );
        return Err(c.ui.fail(diag.help(help)));
    };
    let text = args.weights.as_deref().unwrap_or_default();
    let mut bad = vec![];
    let mut strangers = vec![];
    for m in weights.compare(asked) {
        match m {
            Mismatch::Unexpected { name } => strangers.push(name),
            m => bad.push(
                at_flag(Code::BadWeights, m.to_string(), "--weights", text, "in these weights")
                    .help("take the checkpoint of this variant, or set the fields that differ"),
            ),
        }
    }
    if let Some(first) = strangers.first() {
        c.ui.note(&format!("note: {} tensors are not read, such as `{first}`", strangers.len()));
    }
    if bad.is_empty() { Ok(()) } else { Err(c.ui.fail_all(bad)) }
}

fn unknown_inputs(c: &Context, program: &Program, inputs: &Tensors) -> Done {
    let known: Vec<&str> =
        program.main().map(|m| m.inputs.iter().map(|i| &*i.name).collect()).unwrap_or_default();
    let mut bad = vec![];
    for name in inputs.keys().filter(|n| !known.contains(&n.as_str())) {
        let diag = Diag::error(Code::BadInput, format!("there is no input `{name}`"));
        bad.push(match nearest(name, known.iter().copied()) {
            Some(near) => diag.help(format!("did you mean `{}`?", file_name(near))),
            None => diag.help(format!("inputs: {}", known.join(", "))),
        });
    }
    for name in known.iter().filter(|n| !inputs.contains_key(**n)) {
        bad.push(
            Diag::error(Code::BadInput, format!("the input `{name}` is missing"))
                .help(format!("add `{}` to the file of `--inputs`", file_name(name))),
        );
    }
    if bad.is_empty() { Ok(()) } else { Err(c.ui.fail_all(bad)) }
}

const OUTSIDE: &str = "the ids are of another vocabulary than that of the variant";

/// Ids and labels that a model is given by name must be rows of its table, as those of a batch.
fn outside_vocabulary(c: &Context, program: &Program, inputs: &Tensors) -> Done {
    let Some(rows) = vlmc::compile::vocabulary(program) else { return Ok(()) };
    let ids = ["input_ids", "next_ids", "next_labels"];
    for i in program.main().into_iter().flat_map(|f| &f.inputs) {
        let reads = i.from.as_ref().is_some_and(|from| ids.contains(&from.function.as_str()));
        let Some(t) = inputs.get(&*i.name).filter(|_| reads) else { continue };
        // What is no integer is told where it is read.
        let values = t.to_i64().unwrap_or_default();
        let bad = values.iter().position(|v| u64::try_from(*v).is_ok_and(|v| v >= rows));
        if let Some(row) = bad {
            let name = file_name(&i.name);
            let message =
                format!("`{name}` row {row} is {}, the vocabulary has {rows} rows", values[row]);
            let diag = Diag::error(Code::BadInput, message);
            return Err(c.ui.fail(diag.help(OUTSIDE)));
        }
    }
    Ok(())
}

/// The name in a file of an input of the program.
fn file_name(input: &str) -> String {
    if input.starts_with("dout.") { input.to_string() } else { format!("in.{input}") }
}

/// What runs, in which numbers, and the kernels of its clusters.
#[derive(Clone, Copy)]
struct Run<'r> {
    program: &'r Program,
    precision: Precision,
    kernels: Option<&'r Clusters>,
    /// Ids of a batch must be below.
    vocabulary: Option<usize>,
}

/// The fused graph of a program, with kernels for this machine.
#[cfg(feature = "codegen")]
fn fuse(c: &Context, program: &Program, precision: Precision) -> Done<(Program, Clusters)> {
    if precision == Precision::F64 {
        let diag = at_flag(
            Code::NotYet,
            "kernels compute in f32, not in f64",
            "",
            "--fused",
            "given here",
        );
        return Err(c.ui.fail(diag.help("leave it out, or take `--dtype f32`")));
    }
    let failed = |e: anyhow::Error| {
        c.ui.fail(
            Diag::error(Code::CannotCompile, format!("{e:#}")).help("see `vlmc explain V0404`"),
        )
    };
    let program = vlmc::eval::fused(program).map_err(failed)?;
    let (kernels, refused) = vlmc::kernels::host(&program).map_err(failed)?;
    let (with, all) = kernels.count(&program);
    c.ui.note(&format!("{with} of {all} clusters by host kernels"));
    for (function, refusal) in &refused {
        c.ui.note(&format!("note: @{function} has no kernel and is evaluated: {refusal}"));
    }
    Ok((program, kernels))
}

#[cfg(not(feature = "codegen"))]
fn fuse(c: &Context, _: &Program, _: Precision) -> Done<(Program, Clusters)> {
    let message = "this build of vlmc generates no kernels";
    let diag = at_flag(Code::NotYet, message, "", "--fused", "given here");
    Err(c.ui.fail(diag.help("leave it out, or build with the cargo feature `codegen`")))
}

fn evaluate(
    c: &Context,
    run: Run<'_>,
    inputs: &Inputs<'_>,
    param: &dyn Fn(&str) -> anyhow::Result<HostTensor>,
    flag: &str,
) -> Done<Evaluated> {
    let mut provider = |name: &str, _: &vlmc_ir::graph::Param| param(name);
    vlmc::eval::run_with(run.program, run.precision, run.kernels, inputs, &mut provider, &|_| false)
        .map_err(|e| {
            let text = format!("{e:#}");
            let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
            let diag = Diag::error(Code::BadInput, first.to_string());
            let diag = if rest.trim().is_empty() { diag } else { diag.note(rest.trim_end()) };
            c.ui.fail(
                diag.help(format!("check `{flag}` against the sizes of the spec and its variant")),
            )
        })
}

/// A microbatch: its file, its index, and what it is called.
struct Microbatch {
    file: TensorFile,
    index: usize,
    name: String,
}

/// The microbatches to evaluate; forms are checked, no values read.
fn microbatches(c: &Context, args: &Args, path: &str) -> Done<Vec<Microbatch>> {
    let files = BatchFiles::find(path).map_err(|e| refused(c, path, &e))?;
    let mut out = vec![];
    for file_path in files.paths() {
        let open = || TensorFile::open(file_path).map_err(|e| refused(c, path, &e));
        let count = Batch::count(&open()?).map_err(|e| refused(c, path, &e))?;
        let which = match args.microbatch {
            Some(n) => n..n + 1,
            None => 0..count,
        };
        for index in which {
            let name = match files.paths() {
                [_] => format!("microbatch {index}"),
                _ => format!("{} microbatch {index}", file_path.display()),
            };
            out.push(Microbatch { file: open()?, index, name });
        }
    }
    if let Some(output) = args.output.as_deref().filter(|_| out.len() != 1) {
        let message = format!("there are {} microbatches and one file for results", out.len());
        let diag = at_flag(Code::BadSetting, message, "-o", output, "holds one");
        return Err(c.ui.fail(diag.help("choose one with `--microbatch N`")));
    }
    Ok(out)
}

fn refused(c: &Context, path: &str, e: &dyn std::fmt::Display) -> Stop {
    let diag = at_flag(Code::BadBatch, e.to_string(), "--batch", path, "this batch");
    c.ui.fail(diag.help("`vlmc pack` writes batch files"))
}

fn batches(
    c: &Context,
    args: &Args,
    all: &[Microbatch],
    run: Run<'_>,
    param: &dyn Fn(&str) -> anyhow::Result<HostTensor>,
) -> Done {
    let path = args.batch.as_deref().unwrap_or_default();
    let mut done: Vec<Evaluated> = vec![];
    for m in all {
        let batch = Batch::read(&m.file, m.index).map_err(|e| refused(c, path, &e))?;
        if let Some(rows) = run.vocabulary {
            batch.check_vocabulary(rows).map_err(|e| {
                let diag = at_flag(Code::BadBatch, e.to_string(), "--batch", path, "this batch");
                c.ui.fail(diag.help(OUTSIDE))
            })?;
        }
        let documents = batch.layout.documents().filter(|d| d.valid > 0).count();
        put(&format!(
            "{}: {}, {}, {}, {}\n",
            m.name,
            plural(batch.tokens(), "row"),
            plural(documents, "document"),
            plural(batch.image_grids().len(), "image"),
            plural(batch.video_grids().len(), "video"),
        ))?;
        let out = evaluate(c, run, &Inputs::Batch(&batch), param, "--batch")?;
        put(&losses(&out))?;
        done.push(out);
    }
    match done.as_slice() {
        [one] => save(c, args, one),
        // With several there is no file to write; that was settled before.
        several => put(&format!("step\n{}", losses(&joined(several)))),
    }
}

/// Sums and counts of several microbatches together: the loss of a training step.
fn joined(done: &[Evaluated]) -> Evaluated {
    let mut all = Evaluated::default();
    for out in done {
        for (name, (sum, count, weight)) in &out.losses {
            let entry = all.losses.entry(name.clone()).or_insert((0.0, 0.0, *weight));
            entry.0 += sum;
            entry.1 += count;
        }
    }
    all
}

/// Each loss, and their weighted sum.
fn losses(out: &Evaluated) -> String {
    if out.losses.is_empty() {
        return String::new();
    }
    let mut rows = vec![];
    for (name, (sum, count, weight)) in &out.losses {
        let mean = if *count == 0.0 { 0.0 } else { sum / count };
        let how = format!("sum {sum:.4}, count {count}, weight {weight}");
        rows.push(vec![name.clone(), format!("{mean:.6}"), how]);
    }
    rows.push(vec!["loss".into(), format!("{:.6}", out.loss())]);
    table(&rows)
}

/// Results of a function: form and size.
fn shapes(out: &Evaluated) -> String {
    let row = |(name, t): (&String, &HostTensor)| {
        let values = t.to_f64();
        let square: f64 = values.iter().map(|v| v * v).sum();
        let rms = (square / values.len().max(1) as f64).sqrt();
        vec![result_name(name), format!("{} {:?}", t.dtype(), t.shape), format!("rms {rms:.6}")]
    };
    table(&out.outputs.iter().map(row).collect::<Vec<_>>())
}

/// The name in a file of a result of the program.
fn result_name(output: &str) -> String {
    if output.starts_with("grad.") { output.to_string() } else { format!("out.{output}") }
}

/// Writes results under the names of the reference cases.
fn save(c: &Context, args: &Args, out: &Evaluated) -> Done {
    let Some(path) = &args.output else { return Ok(()) };
    let scalar = |v: f64| HostTensor { shape: vec![], data: HostData::F64(vec![v]) };
    let mut all: Vec<(String, HostTensor)> =
        out.outputs.iter().map(|(n, t)| (result_name(n), t.clone())).collect();
    all.extend(out.gradients.iter().map(|(n, t)| (format!("grad.param.{n}"), t.clone())));
    for (name, (sum, count, _)) in &out.losses {
        let mean = if *count == 0.0 { 0.0 } else { sum / count };
        all.push((format!("out.{name}_loss"), scalar(mean)));
    }
    if !out.losses.is_empty() {
        all.push(("out.loss".into(), scalar(out.loss())));
    }
    let borrowed = all.iter().map(|(n, t)| (n.as_str(), t));
    write_file(path, borrowed, &BTreeMap::new()).map_err(|e| {
        let diag = at_flag(Code::FileAccess, e.to_string(), "-o", path, "this file");
        c.ui.fail(diag.help("name a file in a folder that can be written to"))
    })
}
