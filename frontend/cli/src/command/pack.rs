//! `vlmc pack`

use crate::Context;
use crate::ui::{Done, Stop, at_flag, put};
use vlmc_data::batch::{Batch, PictureSample, plan_microbatches, write_batches};
use vlmc_data::pack::PackOptions;
use vlmc_data::safetensors::TensorFile;
use vlmc_frontend::diag::{Code, Diag};

/// What to pack, and how large.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "A sample file holds input_ids [T] and may hold labels, mm_token_type_ids, pixel_values \
                        with image_grid_thw, and pixel_values_videos with video_grid_thw."
)]
pub struct Args {
    /// One file a sample, in order
    #[arg(required = true, value_name = "SAMPLE.safetensors")]
    samples: Vec<String>,
    /// The batch file
    #[arg(short, long, value_name = "B.safetensors")]
    output: String,
    /// Rows of a microbatch
    #[arg(long, value_name = "T", default_value_t = 4096)]
    tokens: usize,
    /// Multiple to which each document is padded
    #[arg(long, value_name = "N", default_value_t = 1)]
    align: usize,
    /// Most documents of a microbatch [default: no limit]
    #[arg(long, value_name = "N")]
    max_docs: Option<usize>,
}

/// Rows of a microbatch at most: all of them are made at once, in memory.
const MOST_ROWS: usize = 1 << 26;

/// Runs it.
pub fn run(c: &Context, args: &Args) -> Done {
    let documents = args.max_docs.unwrap_or(1);
    for (flag, value) in
        [("--tokens", args.tokens), ("--align", args.align), ("--max-docs", documents)]
    {
        if !(1..=MOST_ROWS).contains(&value) {
            let message = format!("`{flag}` is {value}, it must be from 1 to {MOST_ROWS}");
            return Err(c.ui.fail(
                at_flag(Code::BadSetting, message, flag, &value.to_string(), "set here")
                    .help("give a number in this range"),
            ));
        }
    }
    let mut samples = vec![];
    let mut bad = vec![];
    for path in &args.samples {
        let sample = TensorFile::open(path)
            .map_err(|e| (Code::BadTensorFile, e.to_string()))
            .and_then(|f| PictureSample::read(&f).map_err(|e| (Code::BadBatch, e.to_string())));
        match sample {
            Ok(sample) => samples.push(sample),
            Err((code, message)) => bad.push(
                at_flag(code, message, "", path, "this sample")
                    .help("a sample has `input_ids` of one dim; see `vlmc pack --help`"),
            ),
        }
    }
    if !bad.is_empty() {
        return Err(c.ui.fail_all(bad));
    }
    let refused = |e: &dyn std::fmt::Display| -> Stop {
        let diag = Diag::error(Code::BadBatch, e.to_string());
        c.ui.fail(diag.help("change `--tokens`, `--align` or `--max-docs`, or split the sample"))
    };
    let lengths: Vec<usize> = samples.iter().map(|s| s.sample.ids.len()).collect();
    let plan = plan_microbatches(&lengths, args.align, args.tokens, args.max_docs);
    let plan = plan.map_err(|e| refused(&e))?;
    let options =
        PackOptions { align: args.align, tokens: Some(args.tokens), documents: args.max_docs };
    let batches: Result<Vec<Batch>, _> =
        plan.into_iter().map(|range| Batch::pack(&samples[range], options)).collect();
    let batches = batches.map_err(|e| refused(&e))?;
    write_batches(&args.output, &batches).map_err(|e| refused(&e))?;
    put(&format!(
        "{}: {} samples in {} microbatches of {} rows\n",
        args.output,
        samples.len(),
        batches.len(),
        args.tokens
    ))
}
