//! Builds the kernels of a program's clusters and says what they take:
//! `ptx FILE.vir OUT TARGET,..`.
use std::path::Path;
use vlmc_codegen::{Ptxas, build::build};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a: Vec<String> = std::env::args().collect();
    let p = vlmc_ir::text::parse::program(&std::fs::read_to_string(&a[1])?)?;
    let targets = a[3].split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let ptxas = Ptxas::find()?.with_cache("/tmp/ptxas-cache");
    let t = std::time::Instant::now();
    let built = build(&p, &targets, Some(&ptxas))?;
    println!("{:?}, assembler {} ms", t.elapsed(), built.assembled_ms);
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
                    println!("{:60} {:8} regs {:3} spill {:4} block {:4}", l.symbol, b.target, r.registers, r.spill_bytes, l.block);
                }
            }
        }
    }
    Ok(())
}
