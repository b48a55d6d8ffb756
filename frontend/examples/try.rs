//! Scratch driver.
use vlmc_frontend::{diag, elab};
struct Dir(std::path::PathBuf);
impl elab::Reader for Dir {
    fn module(&self, name: &str) -> Option<(String, Vec<u8>)> {
        let p = self.0.join(format!("{name}.vlm"));
        Some((p.display().to_string(), std::fs::read(p).ok()?))
    }
    fn modules(&self) -> Vec<String> { vec![] }
}
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let path = std::path::PathBuf::from(&args[1]);
    let t = std::time::Instant::now();
    let (lib, mut diags) = elab::Library::load(&args[1], std::fs::read(&path).unwrap(), &Dir(path.parent().unwrap().into()));
    if !diags.has_errors() { diags.append(elab::check(&lib)); }
    eprintln!("check {:?}", t.elapsed());
    if !diags.has_errors() && args.len() > 2 {
        let l = elab::lower(&lib, &elab::Target { function: args.get(3).map(|s| s.as_str()), args: &[], variant: Some(&args[2]), settings: &[], dtype: vlmc_ir::ty::DType::Bf16 });
        diags.append(l.diags);
        eprintln!("lower {:?}", t.elapsed());
        if let Some(p) = l.program {
            print!("{}", vlmc_ir::text::print::program(&p));
            let n: i64 = p.parameters().iter().map(|(_, x)| x.ty.elements().as_constant().unwrap_or(0)).sum();
            let mtp: i64 = p.parameters().iter().filter(|(n,_)| n.starts_with("mtp.")).map(|(_, x)| x.ty.elements().as_constant().unwrap_or(0)).sum();
            eprintln!("params {n} without mtp {}", n - mtp);
            for e in vlmc_ir::verify::verify(&p) { eprintln!("VERIFY {}", e.render(&p)); }
        }
    }
    let (list, more) = diags.sorted();
    for d in list { eprintln!("{}", diag::render::human(d, &lib.sources, false)); }
    eprintln!("{more} more");
}
