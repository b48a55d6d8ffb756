//! What a device does in a second: the figures of the cost model.

use serde::Deserialize;
use std::path::Path;

/// The figures of the device that plans are made for where none is named.
const H200: &str = include_str!("h200.toml");

/// Rates and sizes of a device and of what connects it to others.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Device {
    /// What to call it.
    pub name: String,
    /// Memory, GiB.
    pub memory_gib: f64,
    /// Bytes read and written by a copy, GB/s.
    pub bandwidth_gb_s: f64,
    /// Matrix products, TFLOP/s.
    pub product_tflops: f64,
    /// Products of rows in groups, forward and backward.
    pub grouped_product_tflops: [f64; 2],
    /// Attention, forward and backward.
    pub attention_tflops: [f64; 2],
    /// The delta rule, forward and backward, of the operations that the op table counts.
    pub delta_rule_tflops: [f64; 2],
    /// A kernel's start, microseconds.
    pub launch_us: f64,
    /// Devices that share a fast link.
    pub ranks_per_node: u64,
    /// Bytes of one device to others of its node, GB/s.
    pub node_gb_s: f64,
    /// Bytes of one device to other nodes, GB/s.
    pub network_gb_s: f64,
    /// A message's start, microseconds.
    pub latency_us: f64,
}

impl Device {
    /// The device that comes along.
    ///
    /// # Errors
    /// Never: a test reads the same text.
    pub fn usual() -> Result<Device, String> {
        Device::parse(H200)
    }

    /// Reads a file in the form of the one that comes along.
    ///
    /// # Errors
    /// When it cannot be read, lacks a figure, or one of them is not above zero.
    pub fn read(path: &Path) -> Result<Device, String> {
        let text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
        Device::parse(&text)
    }

    fn parse(text: &str) -> Result<Device, String> {
        let device: Device = toml::from_str(text).map_err(|e| e.message().to_string())?;
        let figures = [
            device.memory_gib,
            device.bandwidth_gb_s,
            device.product_tflops,
            device.launch_us,
            device.node_gb_s,
            device.network_gb_s,
            device.latency_us,
            device.ranks_per_node as f64,
        ];
        let pairs =
            [device.grouped_product_tflops, device.attention_tflops, device.delta_rule_tflops];
        let good = |f: &f64| f.is_finite() && *f > 0.0;
        if !figures.iter().chain(pairs.iter().flatten()).all(good) {
            return Err("every figure must be above zero".to_string());
        }
        Ok(device)
    }

    /// Milliseconds to move bytes through memory.
    pub fn memory_ms(&self, bytes: f64) -> f64 {
        bytes / self.bandwidth_gb_s / 1e6
    }

    /// Milliseconds of a message of so many bytes between ranks, of which `span` in a row have both
    /// ends.
    pub fn message_ms(&self, bytes: f64, span: u64) -> f64 {
        let rate = if span <= self.ranks_per_node { self.node_gb_s } else { self.network_gb_s };
        self.latency_us / 1e3 + bytes / rate / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_that_come_along() {
        let device = Device::usual().expect("reads");
        // A copy of 4.3 GB takes a millisecond.
        assert!((device.memory_ms(4.3e9) - 1.0).abs() < 1e-9);
        assert!((device.message_ms(450e6, 8) - 1.005).abs() < 1e-9);
        assert!((device.message_ms(50e6, 16) - 1.005).abs() < 1e-9);
        let zero = H200.replace("launch_us = 1.0", "launch_us = 0");
        assert_eq!(Device::parse(&zero), Err("every figure must be above zero".to_string()));
        assert!(Device::parse("name = \"x\"").is_err_and(|e| e.contains("missing field")));
    }
}
