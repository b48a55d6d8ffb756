//! From pictures and videos to patch rows and prompt text.

mod patches;
mod resize;
mod video;

pub use patches::{Normalize, PatchSizes, PixelError, patch_rows};
pub use resize::{PixelBounds, ResizeError, image_size, video_size};
pub use video::{SampleOptions, VideoError, frame_times, sample_frames, timestamp_text};
