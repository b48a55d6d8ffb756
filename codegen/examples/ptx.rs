//! Kernels of chosen clusters under a chosen shape, beside an artifact that has others:
//! `ptx FILE.vir OUT TARGET,.. LABEL,.. [key=value]..`; what they take is printed.
use std::path::Path;
use vlmc_codegen::kernel::Shape;
use vlmc_codegen::{Ptxas, build::build_with};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a: Vec<String> = std::env::args().collect();
    let mut p = vlmc_ir::text::parse::program(&std::fs::read_to_string(&a[1])?)?;
    let labels: Vec<&str> = a[4].split(',').collect();
    p.functions.retain(|f| {
        f.cluster.as_deref().is_some_and(|c| labels.contains(&"all") || labels.contains(&c))
    });
    let targets = a[3].split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let mut shape = Shape::GPU;
    for pair in &a[5..] {
        let (key, value) = pair.split_once('=').ok_or("key=value")?;
        let v: i64 = value.parse()?;
        match key {
            "held" => shape.held = v,
            "block" => shape.block = v,
            "strip" => shape.strip[0] = v,
            "windows" => shape.strip[1] = v,
            "sums" => shape.strip[2] = v,
            "unroll" => shape.unroll = v,
            "vector" => shape.vector = v,
            "stages" => shape.stages = v,
            "resident" => shape.resident = v,
            "together" => shape.together = v,
            "split" => shape.split = v != 0,
            _ => return Err(key.into()),
        }
    }
    let ptxas = Ptxas::find()?.with_cache("/tmp/ptxas-cache");
    let built = build_with(&p, &targets, Some(&ptxas), &shape)?;
    for (file, bytes) in &built.files {
        let path = Path::new(&a[2]).join(file);
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(path, bytes)?;
    }
    for (f, r) in &built.refused {
        println!("REFUSED {f}: {r}");
    }
    if let Some(k) = &built.kernels {
        k.write(Path::new(&a[2]))?;
        for m in &k.modules {
            for b in &m.targets {
                for (l, r) in m.launches.iter().zip(&b.resources) {
                    println!(
                        "{:60} regs {:3} spill {:4} block {:4}",
                        l.symbol, r.registers, r.spill_bytes, l.block
                    );
                }
            }
        }
    }
    Ok(())
}
