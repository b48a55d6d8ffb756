use thiserror::Error;

/// Why a video cannot be sampled.
#[derive(Clone, Debug, PartialEq, Error)]
#[allow(missing_docs)]
pub enum VideoError {
    #[error("the video has no frames")]
    NoFrames,
    #[error("a rate of {fps} frames per second cannot be used")]
    Rate { fps: f64 },
    #[error("the least number of frames {min} is above the greatest {max}, or it is 0")]
    Bounds { min: usize, max: usize },
    #[error("a temporal patch of 0 frames cannot be used")]
    Temporal,
}

/// How many frames to take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleOptions {
    /// Frames to take for each second of video.
    pub fps: f64,
    /// Least number of frames, unless the video has fewer.
    pub min_frames: usize,
    /// Greatest number of frames.
    pub max_frames: usize,
}

impl Default for SampleOptions {
    /// The released processor: 2 a second, 4 to 768.
    fn default() -> SampleOptions {
        SampleOptions { fps: 2.0, min_frames: 4, max_frames: 768 }
    }
}

fn check_rate(fps: f64) -> Result<(), VideoError> {
    if fps.is_finite() && fps > 0.0 { Ok(()) } else { Err(VideoError::Rate { fps }) }
}

/// Numbers of the frames to take from a video of `total` frames at `video_fps`: evenly spaced,
/// the first and the last among them, ties rounded to even.
///
/// # Errors
/// If there are no frames, a rate is not positive, or the bounds are the wrong way round.
pub fn sample_frames(
    total: usize,
    video_fps: f64,
    options: SampleOptions,
) -> Result<Vec<usize>, VideoError> {
    let SampleOptions { fps, min_frames, max_frames } = options;
    check_rate(video_fps)?;
    check_rate(fps)?;
    if total == 0 {
        return Err(VideoError::NoFrames);
    }
    if min_frames > max_frames || max_frames == 0 {
        return Err(VideoError::Bounds { min: min_frames, max: max_frames });
    }
    let wanted = (total as f64 / video_fps * fps) as usize;
    let count = wanted.max(min_frames).min(max_frames).min(total).max(1);
    if count == 1 {
        return Ok(vec![0]);
    }
    let step = (total - 1) as f64 / (count - 1) as f64;
    let frame = |at: usize| {
        // The end is given, not computed: the product may fall short of it.
        if at == count - 1 { total - 1 } else { (at as f64 * step).round_ties_even() as usize }
    };
    Ok((0..count).map(frame).collect())
}

/// Seconds at which each temporal patch lies: the mean of its first and last frame's time. The
/// last frame is repeated where the number of frames does not divide.
///
/// # Errors
/// If the rate is not positive or `temporal` is 0.
pub fn frame_times(
    frames: &[usize],
    video_fps: f64,
    temporal: usize,
) -> Result<Vec<f64>, VideoError> {
    check_rate(video_fps)?;
    if temporal == 0 {
        return Err(VideoError::Temporal);
    }
    let seconds = |frame: usize| frame as f64 / video_fps;
    let mean = |group: &[usize]| match (group.first(), group.last()) {
        (Some(&first), Some(&last)) => (seconds(first) + seconds(last)) / 2.0,
        _ => 0.0,
    };
    // A last group that is short would be filled with its last frame, which changes no mean.
    Ok(frames.chunks(temporal).map(mean).collect())
}

/// The text that stands before the frames of one temporal patch.
pub fn timestamp_text(seconds: f64) -> String {
    format!("<{seconds:.1} seconds>")
}
