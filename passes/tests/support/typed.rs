//! Program texts without result types, which follow from the ops.

use std::collections::BTreeMap;
use vlmc_ir::ops::Op;
use vlmc_ir::text::cursor::Cursor;
use vlmc_ir::ty::Ty;

fn ty(text: &str) -> Ty {
    Cursor::new(text).ty().unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// Adds `: type` to the lines of ops.
pub fn typed(text: &str) -> String {
    let mut out = String::from("program \"test\"\n");
    let mut values: BTreeMap<String, Vec<Ty>> = BTreeMap::new();
    let mut results: BTreeMap<String, Vec<Ty>> = BTreeMap::new();
    let mut function = String::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let label = |l: &str| l.trim().trim_start_matches('%').to_string();
        let of = |v: &str, values: &BTreeMap<String, Vec<Ty>>| {
            let v = label(v);
            let (name, result) = v.split_once('#').unwrap_or((&v, "0"));
            let tys = values.get(name).unwrap_or_else(|| panic!("no %{name} before: {line}"));
            tys[result.parse::<usize>().unwrap()].clone()
        };
        let mut line = line.to_string();
        if let Some(rest) = line.strip_prefix("func @") {
            function = rest.trim_end_matches([' ', '{']).to_string();
            values.clear();
        } else if line.starts_with("input") || line.starts_with("param") {
            let (head, rest) = line.split_once(" : ").unwrap();
            let name = label(head[5..].split('=').next().unwrap());
            let end = rest.find(" init").or(rest.find(" from")).unwrap_or(rest.len());
            values.insert(name, vec![ty(&rest[..end])]);
        } else if line.starts_with("return") || line.starts_with("loss") {
            let at = line.find('%').unwrap();
            let v = line[at..].split([' ', '/']).next().unwrap();
            results.entry(function.clone()).or_default().push(of(v, &values));
        } else if line.starts_with('%') {
            let (left, right) = line.split_once(" = ").unwrap();
            let (head, attributes) = right.split_once('{').map_or((right, ""), |(h, a)| (h, a));
            let mut words = head.trim().splitn(2, ' ');
            let name = words.next().unwrap();
            let operands = words.next().unwrap_or("").split(',').filter(|w| !w.trim().is_empty());
            let operands: Vec<Ty> = operands.map(|v| of(v, &values)).collect();
            let text =
                if attributes.is_empty() { String::new() } else { format!("{{{attributes}") };
            let op = Op::parse(name, &mut Cursor::new(&text)).unwrap();
            let op = op.unwrap_or_else(|e| panic!("{line}: {e:?}"));
            let tys = match &op {
                Op::Call { callee, .. } => results[callee].clone(),
                op => op.infer(&operands).unwrap_or_else(|e| panic!("{line}: {e}")),
            };
            let list: Vec<String> = tys.iter().map(Ty::to_string).collect();
            values.insert(label(left), tys);
            line += &match list.as_slice() {
                [one] => format!(" : {one}"),
                many => format!(" : ({})", many.join(", ")),
            };
        }
        out.push_str(&line);
        out.push('\n');
    }
    out
}
