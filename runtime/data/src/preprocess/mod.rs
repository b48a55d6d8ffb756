//! From pictures and videos to patch rows and prompt text.

#[cfg(feature = "images")]
mod images;
mod patches;
mod resize;
mod video;

#[cfg(feature = "images")]
pub use images::{ImageError, image_patches};
pub use patches::{Normalize, PatchSizes, PixelError, patch_rows};
pub use resize::{PixelBounds, ResizeError, image_size, video_size};
pub use video::{SampleOptions, VideoError, frame_times, sample_frames, timestamp_text};
