package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// doubt looks for a ban that the words of a line could spell, though they do not
// plainly: a word that is expanded where the ban has one of its own, a folder with
// a banned file that is read as a whole, text for a shell that is known only when
// it runs. What a program does that the line starts is no doubt.
func (g *Gate) doubt(rules []rule, s survey) (rule, why string) {
	commands, paths := false, false
	for _, r := range rules {
		if len(r.words)+len(r.globs) == 0 {
			continue
		}
		commands, paths = commands || len(r.words) > 0, paths || len(r.globs) > 0
		if s.unread != "" {
			return r.text, s.unread
		}
		if s.fed != "" && len(r.words) > 0 {
			return r.text, s.fed
		}
	}
	for _, c := range s.commands {
		if commands {
			tokens := tokensOf(c)
			if own := gitCommand(len(c), func(i int) string { return c[i] }); own > 1 {
				tokens = append(tokens[:1], tokens[own:]...)
			}
			for _, r := range rules {
				if len(r.words) > 0 && unify(r.words, tokens, r.prefix, true, false) {
					return r.text, "a command may be one that it names"
				}
			}
		}
		if paths {
			for _, p := range g.uses(c) {
				if hit, ok := g.couldBe(rules, p, s.dirs); ok {
					return hit, filepath.Base(c[0]) + " may use a file that it names"
				}
			}
		}
	}
	if !paths {
		return "", ""
	}
	for _, t := range s.targets {
		if hit, ok := g.couldBe(rules, use{text: t.path, reads: !t.write, writes: t.write}, s.dirs); ok {
			return hit, "a redirection may open a file that it names"
		}
	}
	return "", ""
}

// use is a file, or a folder, that a command may use.
type use struct {
	text   string   // a spelling
	reads  bool     // its content is read
	writes bool     // it is changed
	deep   bool     // all that is in it
	passes []string // names that are passed over
	only   []string // spellings of names, where others are passed over
	shown  bool     // files that are hidden are passed over
}

// uses are the files that a command may use, and how. Of a program that is not
// known neither reads nor writes is said.
func (g *Gate) uses(c []string) []use {
	name, args := filepath.Base(c[0]), c[1:]
	p := g.memory.known().program(name)
	if p != nil && (p.operands == "words" || p.operands == "wrap" || p.operands == "none") || silent(name) ||
		namesOnly(name) {
		return nil
	}
	operands, options := split(args)
	switch {
	case copies(name):
		return copyUses(name, args, operands, options)
	case name == "tar" || name == "bsdtar":
		return tarUses(args, operands)
	case name == "zip" || name == "7z" || name == "7za":
		passes, _ := passedOver(args)
		return spelled(use{reads: true, deep: recursive(options) || name != "zip", passes: passes}, operands...)
	case changesFiles(name):
		return spelled(use{writes: true, deep: recursive(options) && name == "rm"}, operands...)
	case name == "git":
		return spelled(use{reads: slices.Contains(args, "--no-index")}, args...)
	case name == "dd":
		return ddUses(operands)
	case name == "curl" || name == "wget":
		return uploads(operands)
	case opens(name):
		return spelled(use{reads: true}, operands...)
	case p == nil || p.operands == "rule":
		return spelled(use{}, args...)
	}
	return g.readerUses(p, name, args, operands, options)
}

// spelled is a use of each word, in all its spellings.
func spelled(base use, words ...string) (out []use) {
	for _, w := range words {
		for _, form := range spellings(w) {
			base.text = form
			out = append(out, base)
		}
	}
	return out
}

// recursive reports an option by which a program also works on what is in a folder.
func recursive(options []string) bool {
	return slices.ContainsFunc(options, func(o string) bool {
		return o == "--recursive" || o == "--archive" || o == "--dereference-recursive" ||
			len(o) > 1 && o[1] != '-' && strings.ContainsAny(o, "rRa")
	})
}

// namesOnly commands show names and attributes of files, not what is in them.
func namesOnly(name string) bool {
	switch name {
	case "ls", "dir", "vdir", "stat", "du", "realpath", "readlink", "tree", "find", "fd", "fdfind", "lsblk",
		"file", "namei", "lsattr", "which":
		return true
	}
	return false
}

// copies reports commands that put files elsewhere.
func copies(name string) bool {
	return slices.Contains([]string{"cp", "install", "rsync", "scp", "ln", "mv"}, name)
}

// changesFiles reports commands that change or remove the files that they name.
func changesFiles(name string) bool {
	switch name {
	case "tee", "touch", "truncate", "rm", "rmdir", "unlink", "shred", "chmod", "chown", "chgrp", "patch",
		"ed", "ex", "sponge":
		return true
	}
	return false
}

// opens reports commands that read the files that they name, and are not in the table of
// known programs.
func opens(name string) bool {
	switch name {
	case "source", ".", "gzip", "gunzip", "bzip2", "xz", "zstd", "iconv", "split", "csplit", "openssl", "gpg",
		"yq", "zgrep", "zless", "nano", "vi", "vim":
		return true
	}
	return false
}

func copyUses(name string, args, operands, options []string) (out []use) {
	sources := operands
	if len(operands) > 1 && !slices.ContainsFunc(options, func(o string) bool {
		return strings.HasPrefix(o, "-t") || strings.HasPrefix(o, "--target-directory")
	}) {
		sources = operands[:len(operands)-1]
		out = spelled(use{writes: true}, operands[len(operands)-1])
	}
	passes, _ := passedOver(args)
	// A folder that is moved or linked can be read at its new place.
	deep := recursive(options) || name == "mv" || name == "ln"
	return append(out, spelled(use{reads: true, writes: name == "mv", deep: deep, passes: passes}, sources...)...)
}

func tarUses(args, operands []string) []use {
	packs := slices.Contains(args, "--create") || len(args) > 0 && !strings.HasPrefix(args[0], "--") &&
		strings.Contains(strings.TrimLeft(args[0], "-"), "c")
	switch {
	case packs:
		passes, _ := passedOver(args)
		return spelled(use{reads: true, deep: true, passes: passes}, operands...)
	case !slices.Contains(args, "-"):
		return spelled(use{reads: true}, operands...)
	}
	return nil
}

func ddUses(operands []string) (out []use) {
	for _, w := range operands {
		if file, ok := strings.CutPrefix(w, "if="); ok {
			out = append(out, spelled(use{reads: true}, file)...)
		} else if file, ok := strings.CutPrefix(w, "of="); ok {
			out = append(out, spelled(use{writes: true}, file)...)
		}
	}
	return out
}

// uploads are the files that a program of the network sends.
func uploads(operands []string) (out []use) {
	for _, w := range operands {
		if _, file, ok := strings.Cut(w, "@"); ok && !strings.Contains(w, "://") {
			out = append(out, spelled(use{reads: true}, file)...)
		}
	}
	return out
}

// readerUses are the uses of a known program that reads files.
func (g *Gate) readerUses(p *program, name string, args, operands, options []string) (out []use) {
	short := func(o, letters string) bool { return o[1] != '-' && strings.ContainsAny(o, letters) }
	files := operands
	if p.operands == "search" {
		var patterns []string
		files, patterns = g.searched(p, args)
		out = spelled(use{reads: true}, patterns...)
	}
	walks := folders(name) && slices.ContainsFunc(options, func(o string) bool {
		return o == "--recursive" || o == "--dereference-recursive" || short(o, "rR")
	})
	if (p.deep || walks) && len(files) == 0 {
		files = []string{"."}
	}
	base := use{reads: true}
	base.passes, base.only = passedOver(args)
	both := name == "diff" || name == "sdiff" // of two folders, what is in them
	base.deep = p.deep || both || recursive(options) && folders(name)
	base.shown = p.deep && !slices.ContainsFunc(options, func(o string) bool {
		return o == "--hidden" || o == "--unrestricted" || short(o, "u.")
	})
	base.writes = name == "sed" && slices.ContainsFunc(options, func(o string) bool {
		return strings.HasPrefix(o, "--in-p") || short(o, "i")
	})
	return append(out, spelled(base, files...)...)
}

// silent commands are given text, not files.
func silent(name string) bool {
	switch name {
	case "echo", "printf", "test", "[", "cd", "pushd", "popd", "export", "mkdir", "kill", "let", "exit",
		"return", "type", "local", "read", "alias", "xargs":
		return true
	}
	return false
}

// folders reports programs whose -r reads what is in a folder.
func folders(name string) bool {
	switch name {
	case "grep", "egrep", "fgrep", "diff":
		return true
	}
	return false
}

// searched are the files behind the pattern of a program that searches, and those
// that its options name.
func (g *Gate) searched(p *program, args []string) (searched, named []string) {
	words := make([]word, len(args))
	for i, a := range args {
		words[i] = word{text: a, known: true, plain: true}
	}
	d := p.parse(words)
	files := d.operands
	if !d.given && len(files) > 0 {
		files = files[1:]
	}
	for _, w := range files {
		searched = append(searched, w.text)
	}
	for _, w := range d.files {
		named = append(named, w.text)
	}
	return searched, named
}

// split parts operands from options.
func split(args []string) (operands, options []string) {
	for i, a := range args {
		switch {
		case a == "--":
			return append(operands, args[i+1:]...), options
		case len(a) > 1 && a[0] == '-':
			options = append(options, a)
		default:
			operands = append(operands, a)
		}
	}
	return operands, options
}

// passedOver are names that a program is told to leave out, and those that it is
// told to look at alone.
func passedOver(args []string) (out, only []string) {
	for i, a := range args {
		name, value, joined := strings.Cut(a, "=")
		if name != "--exclude" && name != "--exclude-dir" && name != "--include" {
			continue
		}
		if !joined && i+1 < len(args) {
			value = args[i+1]
		}
		if name == "--include" {
			_, pattern := unescape(value)
			only = append(
				only,
				strings.ToLower(strings.NewReplacer("\x01", "\x04", "\x02", "\x04", "\x03", "\x04").Replace(pattern)),
			)
		} else if value = strings.Trim(value, "/"); value != "" && !marked(value) {
			out = append(out, strings.ToLower(strings.TrimPrefix(value, "./")))
		}
	}
	return out, only
}

// couldBe reports whether a place may be a file that a ban speaks of. A word that
// is open as a whole counts only where the command surely reads, or changes, files
// by it; elsewhere some of its text must be of the ban.
func (g *Gate) couldBe(rules []rule, p use, dirs []string) (string, bool) {
	var paths []string
	for _, r := range rules {
		edits := kindOf(r.tool) == editTool
		if len(r.globs) == 0 || edits && p.reads && !p.writes ||
			!edits && p.writes && !p.reads && !p.deep && !marked(p.text) {
			continue
		}
		if paths == nil {
			if paths = g.absolutes(p.text, dirs); paths == nil {
				return "", false
			}
		}
		sure := p.reads && !edits || p.writes && edits
		if marked(p.text) && !open(p.text) {
			if g.thereIs(r, p.text, dirs) {
				return r.text, true
			}
			if !sure {
				continue
			}
		}
		for _, b := range r.bans {
			if !sure && open(p.text) && !tells(p.text, b.text) || p.shown && strings.Contains(b.text, "/.") ||
				passed(b.text, p.passes) {
				continue
			}
			for _, path := range paths {
				if r.spares(path) && !open(p.text) {
					continue
				}
				if p.reaches(b.text, path) && (b.folder == "" || !marked(path) && !p.deep || isFolder(b.folder)) {
					return r.text, true
				}
			}
		}
	}
	return "", false
}

// reaches reports whether the use of a path, with what is below it, may be that of
// what is banned.
func (p use) reaches(ban, path string) bool {
	if meet(ban, path) {
		return true
	}
	if !p.deep {
		return false
	}
	if len(p.only) == 0 {
		return meet(ban, path+"/\x04")
	}
	return slices.ContainsFunc(p.only, func(name string) bool {
		return meet(ban, path+"/"+name) || meet(ban, path+"/\x04/"+name)
	})
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// thereIs reports whether a pattern becomes the name of a file that a ban speaks
// of.
func (g *Gate) thereIs(r rule, text string, dirs []string) bool {
	for _, dir := range dirs {
		names, _ := g.names(word{text: text, pattern: text, glob: true}, []string{dir})
		for _, name := range names {
			if !marked(dir) && matchForms(r, g.forms(name, dir)) {
				return true
			}
		}
	}
	return false
}

// tells reports whether some text of a spelling stands in the ban.
func tells(text, ban string) bool {
	parts := func(c rune) bool { return c <= wordBreak || c == '/' }
	for _, piece := range strings.FieldsFunc(strings.ToLower(text), parts) {
		if piece = strings.Trim(piece, "."); len(piece) > 1 && strings.Contains(ban, piece) {
			return true
		}
	}
	return false
}

// passed reports whether a name that is passed over stands in the ban.
func passed(ban string, names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.Contains(ban+"/", "/"+n+"/") })
}

// absolutes are the spellings of a path from the root, in small letters: as it is
// written, and with the links in it followed as far as it is known.
func (g *Gate) absolutes(text string, dirs []string) []string {
	if text == "" || len(text) > maxOpen {
		return nil
	}
	text = strings.ReplaceAll(text, "\x05", "\x04")
	if strings.HasPrefix(text, "~") {
		text = g.expand(text, "")
	}
	var out []string
	add := func(path string) {
		path = strings.ToLower(path)
		if !slices.Contains(out, path) && len(out) < maxForms {
			out = append(out, path)
		}
	}
	for _, dir := range dirs {
		path := plainPath(join2(dir, text))
		add(path)
		i := strings.IndexAny(path, marks)
		if i < 0 {
			if real, err := resolve(path); err == nil {
				add(real)
			}
			continue
		}
		if i = strings.LastIndexByte(path[:i], '/'); i > 0 {
			if real, err := resolve(path[:i]); err == nil {
				add(real + path[i:])
			}
		}
	}
	for i := 0; i < len(out); i++ {
		for _, c := range g.rules.Copies {
			rest, in := strings.CutPrefix(out[i], strings.ToLower(filepath.Clean(c.At)))
			if in && (rest == "" || rest[0] == '/') {
				add(filepath.Clean(c.Of) + rest)
			}
		}
	}
	return out
}

// plainPath is a spelling of a path without . and .. in it.
func plainPath(path string) string {
	var out []string
	for _, part := range strings.Split(path, "/") {
		switch {
		case part == "" || part == ".":
		case part == ".." && len(out) > 0 && strings.ContainsAny(out[len(out)-1], "\x04"):
			out = []string{"\x04"} // it may have been more than one name
		case part == "..":
			out = out[:max(0, len(out)-1)]
		default:
			out = append(out, part)
		}
	}
	if len(out) > 0 && out[0][0] == openText {
		return strings.Join(out, "/")
	}
	return "/" + strings.Join(out, "/")
}

// ban is a spelling of what a rule bans.
type ban struct {
	text   string
	folder string // it is what is in this folder, if it is one; empty: it is banned in any case
}

// banned are the bans of a rule: its files, and all in its folders.
func banned(globs []string, cwd string) []ban {
	var out []ban
	for _, glob := range globs {
		forms := []string{glob}
		for i := 0; i < len(forms) && len(forms) < 8; i++ { // **/ is also nothing
			if a, b, ok := strings.Cut(forms[i], "/**/"); ok {
				forms[i] = a + "/\x04/" + b
				forms = append(forms, a+"/"+b)
				i--
			}
		}
		for _, f := range forms {
			marks := markGlob(f)
			low := strings.ToLower(marks)
			if strings.HasSuffix(low, "/\x04") {
				out = append(out, ban{text: low})
				continue
			}
			folder := marks
			if marked(folder) {
				folder = filepath.Join(cwd, filepath.Base(marks))
			}
			out = append(out, ban{text: low}, ban{text: low + "/\x04", folder: folder})
		}
	}
	return out
}

// markGlob makes a spelling of a pattern of paths.
func markGlob(glob string) string {
	var b strings.Builder
	for i := 0; i < len(glob); i++ {
		switch c := glob[i]; c {
		case '\\':
			if i++; i < len(glob) {
				b.WriteByte(glob[i])
			}
		case '*':
			mark := byte(anyText)
			for i+1 < len(glob) && glob[i+1] == '*' {
				mark = openText
				i++
			}
			b.WriteByte(mark)
		case '?':
			b.WriteByte(anyByte)
		case '[', '{':
			end := strings.IndexByte(glob[i:], map[byte]byte{'[': ']', '{': '}'}[c])
			if end < 0 {
				end = len(glob) - i - 1
			}
			i += end
			b.WriteByte(openText)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
