//! Whatever is given to the program, it ends with a diagnostic: no panic, no hang.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use vlmc::spec::{self, FileReader};
use vlmc_data::safetensors::write_file;
use vlmc_data::tensor::{HostData, HostTensor};
use vlmc_frontend::diag::Phase;
use vlmc_frontend::elab::{self, Library, Target};
use vlmc_ir::ty::DType;

fn vlmc(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_vlmc"))
        .args(args)
        .env_remove("NO_COLOR")
        .stdin(Stdio::null())
        .output()
        .expect("the program")
}

fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("vlmc-robust-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).expect("a folder");
    path
}

fn file(name: &str, bytes: &[u8]) -> String {
    let path = folder("files").join(name);
    std::fs::write(&path, bytes).expect("written");
    path.display().to_string()
}

fn refused(args: &[&str], code: &str) -> String {
    let out = vlmc(args);
    let text = stderr(&out);
    assert_eq!(out.status.code(), Some(1), "{args:?}: {text}");
    assert!(text.contains(&format!("error[{code}]")), "{args:?}: {text}");
    assert!(out.stdout.is_empty(), "{args:?}: data with errors");
    text
}

/// As `vlmc check` does it, in this process.
fn check(text: &str) {
    let reader = FileReader::embedded();
    let (lib, mut diags) = Library::load("cut.vlm", text.as_bytes().to_vec(), &reader);
    if !diags.iter().any(|d| d.code.phase() == Phase::Syntax) {
        diags.append(elab::check(&lib));
    }
    if !diags.has_errors() {
        let target = Target {
            function: None,
            args: &[],
            variant: Some("tiny"),
            settings: &[],
            shapes: &[],
            dtype: DType::Bf16,
        };
        diags.append(elab::lower(&lib, &target).diags);
    }
    for d in &diags {
        assert!(!d.helps.is_empty(), "no help for {:?}", d.message);
    }
}

#[test]
fn specs_cut_anywhere() {
    for (name, text) in spec::MODELS {
        // Every tenth place of the large ones keeps this short.
        let step = if text.len() > 6000 { 10 } else { 1 };
        for end in (0..text.len()).step_by(step).filter(|end| text.is_char_boundary(*end)) {
            check(&text[..end]);
        }
        assert!(!name.is_empty());
    }
}

#[test]
fn lines_missing_or_doubled() {
    for (_, text) in spec::MODELS {
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            let mut fewer = lines.clone();
            fewer.remove(at);
            check(&fewer.join("\n"));
            let mut more = lines.clone();
            more.insert(at, lines[at]);
            check(&more.join("\n"));
        }
    }
}

#[test]
fn words_exchanged() {
    // Names of other kinds in each place: the checker sees every mixture of kinds.
    let (_, text) = spec::MODELS[0];
    let words = ["T", "c", "x", "embed", "layers", "seq", "1.5", "\"s\"", "[1]", "linear", "true"];
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut at = 0;
    let mut turn = 0;
    while let Some(start) = text[at..].find(is_word).map(|i| at + i) {
        let end = text[start..].find(|c| !is_word(c)).map_or(text.len(), |i| start + i);
        for _ in 0..2 {
            turn += 1;
            check(&format!("{}{}{}", &text[..start], words[turn % words.len()], &text[end..]));
        }
        at = end;
    }
}

#[test]
fn texts_that_are_no_specs() {
    let bad = file("bytes.vlm", b"config C { a : int = 1 }\n\xff\xfe");
    refused(&["check", &bad], "V0102");
    refused(&["fmt", &bad], "V0102");
    refused(&["check", &file("huge.vlm", &vec![b' '; 17 << 20])], "V0103");
}

#[test]
fn large_and_deep() {
    let ten = "let x = f(a, b) + c\n".repeat((10 << 20) / 20);
    let out = vlmc(&["check", &file("ten.vlm", ten.as_bytes())]);
    assert_eq!(out.status.code(), Some(1));
    assert!(out.stderr.len() < 1 << 20, "{} bytes of errors", out.stderr.len());
    let items = "fn f(x: [T]) -> [T] { x }\n".repeat(50_000);
    let out = vlmc(&["check", &file("items.vlm", items.as_bytes())]);
    assert_eq!(out.status.code(), Some(1), "{}", stderr(&out));
    for (open, close) in [("(", ")"), ("[", "]"), ("-", ""), ("if a { ", " } else { a }")] {
        let deep =
            format!("fn f(x: [T]) -> [T] {{ {}x{} }}", open.repeat(10_000), close.repeat(10_000));
        refused(&["check", &file("deep.vlm", deep.as_bytes())], "V0105");
    }
    let chain: String =
        (0..5000).map(|i| format!("fn f{i}(x: [T]) -> [T] {{ f{}(x) }}\n", i + 1)).collect();
    let text = format!("{chain}fn f5000(x: [T]) -> [T] {{ x }}\n");
    let out = vlmc(&["check", &file("chain.vlm", text.as_bytes())]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
}

#[test]
fn files_that_cannot_be_read() {
    refused(&["check", "no/such/file.vlm"], "V0601");
    let folder = folder("files").display().to_string();
    refused(&["check", &folder], "V0601");
    refused(&["fmt", &folder], "V0601");
    refused(&["opt", &folder], "V0601");
    refused(&["import", &folder, "-o", "-"], "V0601");
    refused(&["eval", "llama", "--variant", "tiny", "--weights", &folder, "--batch", "x"], "V0605");
    // Root may read anything, so this asks the system first.
    let closed = file("closed.vlm", b"symbol a\n");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let rights = std::fs::Permissions::from_mode(0o000);
        std::fs::set_permissions(&closed, rights).expect("rights");
    }
    if std::fs::read(&closed).is_err() {
        refused(&["check", &closed], "V0601");
    }
}

#[test]
fn empty_files() {
    let empty = file("empty.vlm", b"");
    let out = vlmc(&["check", &empty]);
    assert_eq!(out.status.code(), Some(0), "{}", stderr(&out));
    refused(&["check", &empty, "--variant", "x"], "V0223");
    assert_eq!(vlmc(&["fmt", "--check", &empty]).status.code(), Some(0));
    refused(&["opt", &empty], "V0402");
    refused(&["import", &empty, "-o", "-"], "V0224");
}

#[test]
fn exit_codes_and_streams() {
    let help = vlmc(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(!help.stdout.is_empty() && help.stderr.is_empty());
    for args in [&["frob"][..], &["check", "--frob"], &[], &["eval", "llama"]] {
        let out = vlmc(args);
        assert_eq!(out.status.code(), Some(2), "{args:?}");
        assert!(out.stdout.is_empty(), "{args:?}");
    }
    assert_eq!(vlmc(&["check", "llama"]).status.code(), Some(0));
}

#[test]
fn every_flag_tells_its_default() {
    let text = |args: &[&str]| String::from_utf8_lossy(&vlmc(args).stdout).into_owned();
    let commands = text(&["--help"]);
    let commands = commands.split("Commands:").nth(1).unwrap_or_default();
    let names: Vec<&str> = commands
        .lines()
        .map_while(|l| if l.starts_with("Options") { None } else { Some(l) })
        .filter(|l| l.starts_with("  ") && !l.starts_with("   "))
        .filter_map(|l| l.split_whitespace().next())
        .filter(|n| *n != "help")
        .collect();
    assert!(names.len() >= 9, "{names:?}");
    for name in names {
        let page = text(&[name, "--help"]);
        let options = page.split("Options:").nth(1).unwrap_or_default();
        // A flag, and all lines up to the next.
        for option in options.split("\n  -").skip(1).chain(options.split("\n      --").skip(1)) {
            let option = option.split("\n  -").next().unwrap_or_default();
            let option = option.split("\n      --").next().unwrap_or_default();
            let first = option.split_whitespace().next().unwrap_or_default();
            let own = ["h,", "V,", "-help", "-version", "help", "version"].contains(&first);
            // What must be given has no default; the usage line names it outside of brackets.
            let long = option.split("--").nth(1).unwrap_or(option);
            let long = long.split([' ', '\n']).next().unwrap_or_default();
            let long = if option.contains("--") { long } else { first };
            let needed =
                page.contains(&format!("] --{long} <")) || page.contains(&format!("> --{long} <"));
            assert!(own || needed || option.contains("[default: "), "{name}: {first}: {option}");
        }
    }
}

#[test]
fn a_closed_pipe_ends_quietly() {
    for args in [&["explain", "ops"][..], &["check", "llama", "--variant", "tiny"], &["--help"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_vlmc"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program");
        drop(child.stdout.take());
        let mut text = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut text).expect("text");
        let code = child.wait().expect("ends").code();
        assert!(code == Some(0) && text.is_empty(), "{args:?}: {code:?} {text}");
    }
}

#[test]
fn error_formats_and_colours() {
    let bad = file("bad.vlm", b"fn f(x: [T]) -> [T] { y }\n");
    let human = stderr(&vlmc(&["check", &bad, "--color", "always"]));
    assert!(human.contains('\u{1b}'));
    for args in [&["--color", "never"][..], &[], &["--color", "auto"]] {
        let text = stderr(&vlmc(&[&["check", &bad][..], args].concat()));
        assert!(!text.contains('\u{1b}') && text.contains("1 error"), "{text}");
    }
    let short = stderr(&vlmc(&["check", &bad, "--error-format", "short"]));
    assert!(short.ends_with("bad.vlm:1:23: error[V0201]: unknown name `y`\n"), "{short}");
    let json = stderr(&vlmc(&["check", &bad, "--error-format", "json"]));
    for line in json.lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(value["code"], "V0201");
    }
    assert_eq!(json.lines().count(), 1);
}

#[test]
fn standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_vlmc"))
        .args(["check", "-"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program");
    let text = b"use std.{linear}\nfn f(x: [T, 4], w: [2, 4]) -> [T, 2] { linear(x, w) }\n";
    child.stdin.take().expect("piped").write_all(text).expect("written");
    let out = child.wait_with_output().expect("ends");
    assert_eq!(out.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&out.stdout).contains("no errors"));
}

#[test]
fn ids_outside_the_vocabulary() {
    let batch = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/batch.safetensors");
    let batch = batch.display().to_string();
    let small = ["eval", "qwen3_5_vl", "--variant", "tiny", "--set", "text.vocab=900"];
    let out = vlmc(&[&small[..], &["--weights", "init:1", "--batch", &batch]].concat());
    assert_eq!(out.status.code(), Some(1));
    let text = stderr(&out);
    assert!(text.contains("error[V0603]"), "{text}");
    assert!(text.contains("`input_ids` row 4 is 1000, the vocabulary has 900 rows"), "{text}");
    // Nor do they pass when they are given by name.
    let ints = |shape: &[usize], values: Vec<i32>| {
        HostTensor::new(shape.to_vec(), HostData::I32(values)).expect("a tensor")
    };
    let tensors = [
        ("in.ids", ints(&[3], vec![7, 130_000, 9])),
        ("in.targets", ints(&[3], vec![7, 8, -100])),
        ("in.seq.cu_seqlens", ints(&[2], vec![0, 3])),
        ("in.seq.cu_seqlens_padded", ints(&[2], vec![0, 3])),
        ("in.seq.positions", ints(&[3, 3], [0, 1, 2].repeat(3))),
    ];
    let path = folder("files").join("ids.safetensors");
    write_file(&path, tensors.iter().map(|(n, t)| (*n, t)), &Default::default()).expect("written");
    let path = path.display().to_string();
    let line = ["eval", "llama", "--variant", "tiny", "--set", "vocab=1000", "--weights", "init:1"];
    let text = refused(&[&line[..], &["--inputs", &path]].concat(), "V0604");
    assert!(text.contains("`in.ids` row 1 is 130000, the vocabulary has 1000 rows"), "{text}");
}

#[test]
fn functions_of_the_library_are_explained() {
    let text = |args: &[&str]| String::from_utf8_lossy(&vlmc(args).stdout).into_owned();
    let list = text(&["explain", "std"]);
    assert!(list.lines().count() > 15, "{list}");
    for name in list.lines() {
        let page = text(&["explain", name]);
        let (head, rest) = page.split_once("\n\n").expect("a heading");
        assert_eq!(head, format!("# `{name}`"));
        assert!(!rest.starts_with("```"), "{name} has no doc comment");
        assert!(page.contains(&format!("\nuse std.{{{name}}}\n\nfn {name}")), "{page}");
        assert!(page.ends_with("}\n```\n"), "{page}");
    }
    let text = refused(&["explain", "linaer"], "V0201");
    assert!(text.contains("did you mean `linear`?"), "{text}");
}

#[test]
fn fmt_check_shows_what_would_change() {
    let path = file("out_of_style.vlm", b"symbol a\nfn  half(x:[T])->[T]{x*0.5}\n");
    let out = vlmc(&["fmt", "--check", &path]);
    assert_eq!(out.status.code(), Some(1));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("out_of_style.vlm"), "{text}");
    assert!(text.contains("\n-fn  half(x:[T])->[T]{x*0.5}\n"), "{text}");
    assert!(text.contains("\n+fn half(x: [T]) -> [T] { x * 0.5 }\n"), "{text}");
}
