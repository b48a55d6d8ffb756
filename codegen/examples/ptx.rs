//! Writes the MLIR and PTX of every cluster of a program: `ptx FILE.vir OUT [NAME]`.
use std::{collections::BTreeMap, fs};
use vlmc_codegen::kernel::{Machine, Shape, kernel};
use vlmc_codegen::{Lowering, Target};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let a: Vec<String> = std::env::args().collect();
    let text = fs::read_to_string(&a[1])?;
    let p = vlmc_ir::text::parse::program(&text).map_err(|e| format!("{e:?}"))?;
    let l = Lowering::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for f in p.functions.iter().filter(|f| f.cluster.is_some()) {
        if a.get(3).is_some_and(|n| !f.name.contains(&**n)) {
            continue;
        }
        let name = f.name.replace('.', "_");
        let t = std::time::Instant::now();
        match kernel(f, &name, Machine::Gpu, &Shape::GPU) {
            Err(e) => println!("REFUSED {}: {e}", f.name),
            Ok(k) => {
                let made = t.elapsed();
                for (launch, mlir) in k.launches.iter().zip(&k.mlir) {
                    fs::write(format!("{}/{}.mlir", a[2], launch.symbol), mlir)?;
                    let t = std::time::Instant::now();
                    match l.ptx(mlir, Target::Sm90a) {
                        Ok(ptx) => {
                            fs::write(format!("{}/{}.ptx", a[2], launch.symbol), &ptx)?;
                            println!("{} {:?} lines {} made {made:?} lowered {:?} ptx {}", launch.symbol, launch.grid[0].times, mlir.lines().count(), t.elapsed(), ptx.len());
                        }
                        Err(e) => println!("FAILED {}: {e}", launch.symbol),
                    }
                }
                seen.insert(name, String::new());
            }
        }
    }
    Ok(())
}
