//! The executor: reads an artifact and trains. It decides nothing: what runs, in which order and on
//! which buffers is in the artifact's schedule.

pub mod arena;
pub mod bench;
pub mod checkpoint;
pub mod clusters;
pub mod device;
pub mod executor;
pub mod fabric;
pub mod optimizer;
pub mod options;
pub mod output;
mod rank;
pub mod report;
pub mod run;
pub mod weights;
