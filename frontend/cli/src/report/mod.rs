//! Pictures of the fused graph, and of a plan: the schedule as SVG, as a Chrome trace and as a table, memory over time, and
//! one page that holds them all.

pub mod graph;
mod html;
mod picture;
mod svg;
mod trace;

pub use picture::Picture;

use std::io;
use std::path::{Path, PathBuf};
use vlmc_artifact::Plan;

/// The page's name in a folder.
pub const PAGE: &str = "report.html";

/// Writes the page and the pictures of a plan into a folder, and gives the page's path. Drawings of
/// graphs that lie in the folder (`*.svg`, or in `graphs/`) are put into the page.
///
/// # Errors
/// When the file system says no.
pub fn write(folder: &Path, plan: &Plan) -> io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let picture = Picture::of(plan);
    if let Some(p) = &picture {
        std::fs::write(folder.join("schedule.svg"), svg::schedule(p))?;
        std::fs::write(folder.join("schedule.trace.json"), trace::chrome(p))?;
        std::fs::write(folder.join("schedule.csv"), trace::csv(p))?;
    }
    let page = folder.join(PAGE);
    std::fs::write(&page, html::page(plan, picture.as_ref(), &drawings(folder)))?;
    Ok(page)
}

/// Drawings of graphs: name and text, by name.
fn drawings(folder: &Path) -> Vec<(String, String)> {
    let own = ["schedule.svg"];
    let folders = [folder.to_path_buf(), folder.join("graphs")];
    let entries = folders.iter().filter_map(|f| std::fs::read_dir(f).ok()).flatten();
    let mut out: Vec<(String, String)> = entries
        .filter_map(|e| {
            let path = e.ok()?.path();
            let name = path.file_name()?.to_str()?.to_string();
            let is = path.extension().is_some_and(|e| e == "svg") && !own.contains(&&*name);
            let text = is.then(|| std::fs::read_to_string(&path).ok())??;
            Some((name, text))
        })
        .collect();
    out.sort();
    out
}
