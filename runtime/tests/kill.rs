//! `vlmc-run` killed at random moments: every checkpoint that is there is whole, none that was
//! finished is lost, and what goes on from it ends as if nothing had happened.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use vlmc_artifact::Artifact;
use vlmc_data::batch::Batch;
use vlmc_data::init::{Distribution, Initializer};
use vlmc_runtime::checkpoint::load;
use vlmc_runtime::executor::Executor;
use vlmc_training_tests::{Folder, Model, document, files, pack};

fn batch() -> Batch {
    pack(&[document(1, 6, 0)], 1).unwrap()
}

fn artifact() -> Artifact {
    // Small, so that most of the time goes into saving.
    let settings = ["text.layers=2", "text.pattern=[gdn,attention]", "text.vocab=1024"];
    let model = Model::small(false, &settings).unwrap();
    model.compile(&[batch()], vlmc_ir::ty::DType::F32, 0).unwrap().artifact
}

fn start(folder: &Folder, more: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vlmc-run"));
    command.args(folder.arguments(more)).stderr(Stdio::null()).spawn().unwrap()
}

/// Folders that count as checkpoints, by step.
fn checkpoints(folder: &Folder) -> BTreeMap<u64, PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder.at("save")) else { return BTreeMap::new() };
    let paths = entries.map(|e| e.unwrap().path());
    let step = |p: &PathBuf| p.file_name()?.to_str()?.strip_prefix("step-")?.parse().ok();
    paths.filter_map(|p| Some((step(&p)?, p))).collect()
}

fn kill_loop(times: u64) {
    let folder = Folder::new(&format!("kill-{times}")).unwrap();
    folder.prepare(&artifact(), &[batch()]).unwrap();
    let options = "--lr 1e-3 --total-steps 100000 --save @save --save-every 1";
    // Moments from shortly after the start of a saving process to many savings later.
    let moment = Initializer::new(11, "moment", Distribution::Uniform(0.0, 0.25));
    let mut newest = 0;
    let mut killed_while_writing = 0;
    for round in 0..times {
        let resume = if newest > 0 { "--resume @save" } else { "" };
        let mut child = start(&folder, &format!("{options} --steps 100000 {resume}"));
        // The first saving of this process has to begin, or nothing is tried.
        let begun = Instant::now();
        while checkpoints(&folder).keys().last().is_none_or(|s| *s <= newest) {
            assert!(child.try_wait().unwrap().is_none(), "round {round}: it ended by itself");
            assert!(begun.elapsed() < Duration::from_secs(60), "round {round}: nothing is saved");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_secs_f64(moment.element(round)));
        child.kill().unwrap();
        child.wait().unwrap();
        let all = checkpoints(&folder);
        for (step, path) in &all {
            let mut executor: Executor<f32> = Executor::new(artifact(), false).unwrap();
            let state =
                load(path, &mut executor).unwrap_or_else(|e| panic!("round {round}: {e:#}"));
            assert_eq!(state.step, *step);
        }
        let mut executor: Executor<f32> = Executor::new(artifact(), false).unwrap();
        let state = load(&folder.at("save"), &mut executor).unwrap();
        assert_eq!(Some(&state.step), all.keys().last(), "the newest one counts");
        assert!(state.step > newest, "round {round}: {} after {newest}", state.step);
        newest = state.step;
        let entries = std::fs::read_dir(folder.at("save")).unwrap();
        let begun = |n: std::ffi::OsString| n.to_string_lossy().starts_with(".writing-");
        killed_while_writing +=
            usize::from(entries.into_iter().any(|e| begun(e.unwrap().file_name())));
    }
    println!("{times} kills, {killed_while_writing} of them while writing; step {newest}");
    // Goes on, and ends as a training that nobody disturbed.
    let end = newest + 2;
    let status = start(&folder, &format!("{options} --steps {end} --resume @save")).wait().unwrap();
    assert!(status.success());
    let whole = options.replace("@save --save-every 1", "@whole");
    assert!(start(&folder, &format!("{whole} --steps {end}")).wait().unwrap().success());
    let last = format!("step-{end:08}");
    let of = |name: &str| files(&folder.at(name).join(&last)).unwrap();
    assert!(of("save") == of("whole"), "the training ends otherwise");
}

#[test]
fn five_kills() {
    kill_loop(5);
}

#[test]
#[ignore = "half a minute"]
fn fifty_kills() {
    kill_loop(50);
}

/// A step that is saved again replaces the checkpoint, and leaves nothing beside it.
#[test]
fn a_step_saved_again() {
    let folder = Folder::new("again").unwrap();
    folder.prepare(&artifact(), &[batch()]).unwrap();
    folder.train("--steps 2 --lr 1e-3 --save @save --save-every 1 --keep 0").unwrap();
    let second = checkpoints(&folder)[&2].clone();
    let before = files(&second).unwrap();
    folder.train("--steps 1 --lr 2e-3 --save @other").unwrap();
    // The optimizer goes on as it was begun there, so step 2 is another one now.
    folder.train("--steps 2 --resume @other --save @save --keep 1").unwrap();
    assert!(files(&second).unwrap() != before);
    let left: Vec<_> = std::fs::read_dir(folder.at("save")).unwrap().collect();
    assert_eq!(left.len(), 1);
    let mut executor: Executor<f32> = Executor::new(artifact(), false).unwrap();
    assert_eq!(load(&folder.at("save"), &mut executor).unwrap().step, 2);
}
