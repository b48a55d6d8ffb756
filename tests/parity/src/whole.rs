//! The vision tower, the host functions, and whole models.

use crate::case::{Case, ints};
use crate::compare::{Row, exact, floats};
use crate::runner::{Ask, Form, Runner, output, seen, setting, twice};
use anyhow::{Result, anyhow, bail};
use serde_json::Value as Json;
use vlmc::eval::{Inputs, Precision, Request, Tensors};
use vlmc_data::pack::SequenceLayout;
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_data::{batch, positions, preprocess, vision};
use vlmc_frontend::elab::{Library, Raw, Setting, import_config};

impl Runner<'_> {
    pub(crate) fn tower(&self) -> Result<Vec<Row>> {
        let config = self.config().ok_or_else(|| anyhow!("no config"))?;
        let number = |key: &str| {
            config
                .get(key)
                .and_then(Json::as_u64)
                .map(|v| v as usize)
                .ok_or_else(|| anyhow!("no {key}"))
        };
        let merge = number("spatial_merge_size")?;
        let side = (number("num_position_embeddings")? as f64).sqrt() as usize;
        let grids = vision::grids_of("grid_thw", &self.case.tensor("in.grid_thw")?.to_i64()?)?;
        let taps = vision::position_taps(&grids, side, merge)?;
        let n = vision::patch_count(&grids)?;
        let ids = ints(vec![n, 2], vision::rotary_ids(&grids, merge)?)?;
        let frames = vision::frame_boundaries(&grids)?;
        let frames = ints(vec![frames.len()], frames.iter().map(|v| i64::from(*v)).collect())?;
        let weights = HostTensor::new(vec![n, 4], HostData::F32(taps.weights.clone()))?;
        let tap_rows = ints(vec![n, 4], taps.rows.clone())?;
        let mut inputs = Tensors::new();
        inputs.insert("pixels".into(), self.case.tensor("in.pixel_values")?);
        inputs.insert("taps".into(), tap_rows.clone());
        inputs.insert("tap_weights".into(), weights.clone());
        inputs.insert("rotary_ids".into(), ids.clone());
        inputs.insert("cu_frames".into(), frames.clone());
        let args = [("c", "c.vision".to_string())];
        let ask = Ask {
            function: "VisionTower",
            args: &args,
            settings: self.section("vision"),
            outs: vec![("merged".into(), Form::Same)],
            grads: true,
            ..Ask::default()
        };
        let (_, mut rows) = self.judge(&ask, inputs.clone())?;
        let out = self.ask(&Ask { grads: false, ..ask }, inputs)?;
        rows.extend([
            exact(self.case, "mid.rope_position_ids", &ids)?,
            exact(self.case, "mid.cu_seqlens", &frames)?,
            self.float("mid.pos_weights", &weights)?,
            self.tap_rows(&tap_rows, &weights)?,
        ]);
        rows.push(self.float("mid.last_hidden_state", seen(&out, "h")?)?);
        for name in ["cos", "sin"] {
            let have = twice(seen(&out, &format!("rope_{name}"))?)?;
            rows.push(self.float(&format!("mid.rope_{name}"), &have)?);
        }
        Ok(rows)
    }

    /// A tap may differ where its weight is zero: it is the same point.
    pub(crate) fn tap_rows(&self, have: &HostTensor, weights: &HostTensor) -> Result<Row> {
        let (a, b) = (have.to_i64()?, self.case.tensor("mid.pos_taps")?.to_i64()?);
        let w = weights.to_f64();
        let differing = (0..a.len().max(b.len()))
            .filter(|i| a.get(*i) != b.get(*i) && w.get(*i).is_none_or(|w| w.abs() > 1e-12));
        Ok(Row { name: "mid.pos_taps".into(), error: differing.count() as f64, tolerance: 0.0 })
    }

    pub(crate) fn positions(&self) -> Result<Vec<Row>> {
        let types = self.case.tensor("in.mm_token_type_ids")?;
        let (b, l) = (types.shape[0], types.shape[1]);
        let mask = self.case.tensor("in.attention_mask")?;
        let layout = SequenceLayout::from_mask(&mask.to_i64()?, b, l)?;
        let grids = |name: &str| -> Result<Vec<vision::Grid>> {
            match self.case.maybe(&format!("in.{name}"))? {
                Some(t) => Ok(vision::grids_of("grid_thw", &t.to_i64()?)?),
                None => Ok(vec![]),
            }
        };
        let (images, videos) = (grids("image_grid_thw")?, grids("video_grid_thw")?);
        let pictures = positions::Pictures { images: &images, videos: &videos };
        let p = positions::mrope_positions(&types.to_i64()?, &layout, Some(pictures), 2)?;
        let n = p.ids.len();
        Ok(vec![
            exact(self.case, "out.position_ids", &ints(vec![n], p.ids)?)?,
            exact(self.case, "out.rope_deltas", &ints(vec![p.deltas.len()], p.deltas)?)?,
        ])
    }

    pub(crate) fn preprocess(&self) -> Result<Vec<Row>> {
        use preprocess::{Normalize, PatchSizes, PixelBounds, image_size, patch_rows, video_size};
        let mut sizes = vec![];
        for hw in self.case.tensor("in.image_hw")?.to_i64()?.chunks(2) {
            let (h, w) = image_size(hw[0] as usize, hw[1] as usize, PixelBounds::IMAGE)?;
            sizes.extend([h as i64, w as i64]);
        }
        let mut videos = vec![];
        for t in self.case.tensor("in.video_thw")?.to_i64()?.chunks(3) {
            let (f, h, w) = (t[0] as usize, t[1] as usize, t[2] as usize);
            let (h, w) = video_size(f, h, w, 2, PixelBounds::VIDEO)?;
            videos.extend([h as i64, w as i64]);
        }
        let image = self.case.tensor("in.image_u8_chw")?;
        let bytes: Vec<u8> = image.to_i64()?.iter().map(|v| *v as u8).collect();
        let (h, w) = (image.shape[1], image.shape[2]);
        let patches = PatchSizes { patch: 16, temporal: 2, merge: 2 };
        let (values, grid) = patch_rows(&bytes, (1, h, w), &Normalize::default(), patches)?;
        let width = 3 * 2 * 16 * 16;
        let pixels = HostTensor::new(vec![values.len() / width, width], HostData::F32(values))?;
        let grid = ints(vec![1, 3], vec![grid.t as i64, grid.h as i64, grid.w as i64])?;
        Ok(vec![
            exact(self.case, "out.resized_hw", &ints(vec![sizes.len()], sizes)?)?,
            exact(self.case, "out.video_resized_hw", &ints(vec![videos.len()], videos)?)?,
            exact(self.case, "out.image_grid_thw", &grid)?,
            self.float("out.pixel_values", &pixels)?,
        ])
    }

    pub(crate) fn model(&self) -> Result<Vec<Row>> {
        let (settings, batch) = model_case(&self.specs.model, self.case)?;
        let valid = batch.layout.row_valid(batch.tokens());
        let request = Request {
            function: None,
            args: vec![],
            variant: None,
            settings: settings.clone(),
            shapes: vec![],
            precision: self.precision,
        };
        let p = self.lowered(&self.specs.model, &request)?;
        let plain = self.run(&p, &Inputs::Batch(&batch))?;
        // Values on the way have names in the program as it is written; results come from what runs.
        let by_kernels = match self.fused {
            true => Some(self.run_fused(&p, &Inputs::Batch(&batch))?),
            false => None,
        };
        let out = by_kernels.as_ref().unwrap_or(&plain);
        let bf16 = self.precision == Precision::Bf16;
        let kept =
            |name: &str, t: &HostTensor| floats(self.case, name, t, self.precision, Some(&valid));
        let scalar = |v: f64| HostTensor::new(vec![], HostData::F64(vec![v]));
        let mean = |name: &str| -> Result<f64> {
            let (sum, count, _) =
                out.losses.get(name).ok_or_else(|| anyhow!("there is no loss `{name}`"))?;
            Ok(sum / count)
        };
        let mut rows = vec![];
        for name in self.case.names("out.") {
            let full = format!("out.{name}");
            rows.push(match name.as_str() {
                "loss" => self.float(&full, &scalar(out.loss())?)?,
                "lm_loss" => self.float(&full, &scalar(mean("lm")?)?)?,
                "aux_loss" => self.float(&full, &scalar(mean("aux")?)?)?,
                "mtp_loss" => self.float(&full, &scalar(mean("mtp")?)?)?,
                "logits" | "mtp_logits" => kept(&full, output(out, &name)?)?,
                other => bail!("{}: nothing stands for out.{other}", self.case.name),
            });
        }
        // Single values on the way are not judged in bf16 (README of the reference cases).
        for name in self.case.names("mid.").into_iter().filter(|_| !bf16) {
            let full = format!("mid.{name}");
            let have = match name.strip_prefix("hidden_states.") {
                Some(i) => {
                    let layers = self.case.names("mid.hidden_states.").len() - 1;
                    match i.parse::<usize>() {
                        Ok(0) => seen(&plain, "embeds")?,
                        Ok(i) if i == layers => seen(&plain, "last")?,
                        Ok(i) => seen(&plain, &format!("decoder.{}.out", i - 1))?,
                        Err(_) => bail!("mid.{name}"),
                    }
                }
                None if name == "mtp_hidden" => output(out, "mtp_hidden")?,
                None => bail!("{}: nothing stands for mid.{name}", self.case.name),
            };
            rows.push(kept(&full, have)?);
        }
        rows.extend(crate::training::judge(
            self.case,
            &self.specs.model,
            settings,
            &batch,
            &crate::training::How {
                precision: self.precision,
                fused: self.fused,
                spread: self.spread,
                recompute: &self.specs.recompute,
            },
        )?);
        Ok(rows)
    }
}

/// The settings of a whole-model case and its rows as documents of one microbatch.
///
/// # Errors
/// When the case is not one of a whole model, or its configuration does not fit the spec.
pub fn model_case(lib: &Library, case: &Case) -> Result<(Vec<Setting>, batch::Batch)> {
    let config = case.json.get("config").ok_or_else(|| anyhow!("{}: no config", case.name))?;
    let imported = import_config(lib, config)
        .map_err(|d| anyhow!("{}: {} errors in the configuration", case.name, d.len()))?;
    let mut settings = imported.settings;
    settings.push(setting("text.mtp_layers", Raw::Int(case.flag("mtp").into())));
    let aux = if case.flag("aux") { "stacked" } else { "none" };
    settings.push(setting("text.aux_loss", Raw::Text(aux.to_string())));
    let batch = model_batch(case)?;
    settings.push(setting("images", Raw::Bool(!batch.grids().is_empty())));
    Ok((settings, batch))
}

fn model_batch(case: &Case) -> Result<batch::Batch> {
    let ids = case.tensor("in.input_ids")?;
    let (b, l) = (ids.shape[0], ids.shape[1]);
    let mask = case.tensor("in.attention_mask")?;
    let layout = SequenceLayout::from_mask(&mask.to_i64()?, b, l)?;
    let grids = |name: &str| -> Result<Option<Vec<vision::Grid>>> {
        match case.maybe(name)? {
            Some(t) => Ok(Some(vision::grids_of("grid_thw", &t.to_i64()?)?)),
            None => Ok(None),
        }
    };
    let pixels = |name: &str| -> Result<batch::PixelRows> {
        match case.maybe(name)? {
            Some(t) => Ok(batch::PixelRows { width: t.shape[1], values: t.to_f32() }),
            None => Ok(batch::PixelRows::default()),
        }
    };
    Ok(batch::Batch {
        input_ids: ids.to_i64()?,
        labels: case.tensor("in.labels")?.to_i64()?,
        layout,
        // Left out on purpose: the host functions must give what the case has.
        position_ids: None,
        token_types: Some(case.tensor("in.mm_token_type_ids")?.to_i64()?),
        image_grids: grids("in.image_grid_thw")?,
        video_grids: grids("in.video_grid_thw")?,
        image_pixels: pixels("in.pixel_values")?,
        video_pixels: pixels("in.pixel_values_videos")?,
    })
}
