package frontmatter

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// known are keys as a reader of agents would name them.
func known() []string {
	return []string{"name", "description", "tools", "model", "color", "metadata"}
}

type fields = map[string]any

// Files as people write them. Each is bent in one way, and nothing of it is lost.
func TestBroken(t *testing.T) {
	for _, c := range []struct {
		file     string
		fields   fields
		body     string
		line     int      // where the body begins
		warnings []string // beginnings
	}{
		{"colon.md", fields{"name": "colon", "description": "Use this agent when: the build fails. Example: a red test", "tools": "Read, Grep", "model": "opus"},
			"Body.\n", 7, []string{"line 3: this is not YAML"}},
		{"dialogue.md", fields{"name": "dialogue", "model": "sonnet", "color": "red", "description": "Use this agent to review code. Examples:\n\n<example>\nContext: The user wrote a function.\n" +
			"user: \"Look at my function\"\nassistant: \"I will ask the reviewer\"\n</example>\n\n<example>\nContext: A second one.\nuser: \"And this\"\nassistant: \"Again\"\n</example>"},
			"\nYou review.\n", 19, []string{"line 3: this is not YAML"}},
		{"breaks.md", fields{"name": "breaks", "description": "Use this: first.\nSecond line.\n\n<example>x</example>"}, "Body\n", 5, []string{"line 3: this is not YAML"}},
		{"twice.md", fields{"name": "twice", "description": "one", "tools": []any{"Read"}}, "Body\n", 7, []string{`line 4: key "name" comes twice; the first counts`}},
		{"unknown-twice.md", fields{"name": "unknown-twice", "description": "Talk.\nuser: a\nassistant: b\nuser: c", "model": "haiku"}, "Body\n", 9,
			[]string{`line 6: this is not YAML, and was read line by line: key "user" comes twice`}},
		{"tabs.md", fields{"name": "tabs", "description": "With tabs", "metadata": fields{"author": "none", "version": "1"}}, "Body\n", 8, []string{"line 5: a tab"}},
		{"bom.md", fields{"name": "bom", "description": "From another system"}, "Body\nmore\n", 5, nil},
		{"alias.md", fields{"name": "alias", "description": "Some text", "metadata": "*d"}, "Body\n", 6, []string{"line 4: the alias *d is not expanded"}},
		{"star.md", fields{"name": "star", "description": "Every tool", "tools": "*"}, "Body\n", 6, []string{"line 4: this is not YAML"}},
		{"quotes.md", fields{"name": "quotes", "description": `"Use it" when a "test" fails`, "model": "opus"}, "Body\n", 6, []string{"line 3: this is not YAML"}},
		{"block.md", fields{"name": "block", "description": "First line: with a colon\n\nwithout indent: and: here", "tools": []any{"Read", "Bash(git add:*, git commit:*)"}}, "Body\n", 11,
			[]string{"line 6: this is not YAML"}},
		{"early.md", fields{"name": "early", "description": "x: y"}, "Body\n", 6, []string{"line 2: this is not YAML", "line 2: text before the first key is ignored"}},
		{"list.md", fields{}, "Body\n", 5, []string{"line 2: this is not YAML", "line 2: text before the first key"}},
		{"second.md", fields{"name": "scalar", "description": "x\n--- # more", "model": "opus"}, "Body\n", 7, []string{"line 3: this is not YAML, and was read line by line: it ends in the middle"}},
		{"empty.md", fields{}, "Only a body\n", 3, nil},
		{"nobody.md", fields{"name": "last"}, "", 4, nil},
		{"nested-twice.md", fields{"name": "nested", "metadata": fields{"a": int64(1)}}, "Body\n", 7, []string{`line 5: key "a" comes twice`}},
		{"control.md", fields{"name": "esc", "description": "red \x1b[31m and bidi \u202e text"}, "Body\n", 5, []string{"line 3: this is not YAML"}},
	} {
		t.Run(strings.TrimSuffix(c.file, ".md"), func(t *testing.T) {
			d := load(t, filepath.Join("testdata", "broken", c.file))
			got := fields{}
			for _, f := range d.Fields {
				got[f.Key] = f.Value
			}
			if !reflect.DeepEqual(got, c.fields) || d.Body != c.body || d.BodyLine != c.line || !d.Found {
				t.Errorf("found %v\nfields %#v\nwant   %#v\nbody %q from line %d", d.Found, got, c.fields, d.Body, d.BodyLine)
			}
			if len(d.Warnings) != len(c.warnings) {
				t.Fatalf("warnings %v", d.Warnings)
			}
			for i, w := range c.warnings {
				if !strings.HasPrefix(d.Warnings[i].String(), w) {
					t.Errorf("warning %q, want %q", d.Warnings[i], w)
				}
			}
		})
	}
	seen, err := filepath.Glob("testdata/broken/*.md")
	if err != nil || len(seen) != 20 { // the 18 above, and those without an end and without a beginning
		t.Errorf("%d files, %v", len(seen), err)
	}
}

func load(t *testing.T, path string) Document {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Parse(data, known())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRefused(t *testing.T) {
	open, err := os.ReadFile("testdata/broken/unterminated.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		text, want string
		large      bool
	}{
		"unterminated": {string(open), "line 1: the front matter that begins here has no end", false},
		"binary":       {"---\nname: \xff\n---\n", "not valid UTF-8", false},
		"file":         {strings.Repeat("x", MaxBytes+1), "bytes, more than", true},
		"head":         {"---\nname: " + strings.Repeat("x", MaxHead) + "\n---\n", "the front matter has", true},
		"lines":        {"---\n" + strings.Repeat("\n", MaxLines+1) + "---\n", "the front matter has", true},
		"nested":       {"---\nmetadata: " + strings.Repeat("[", 30) + strings.Repeat("]", 30) + "\n---\n", "line 2: more than 16 levels", true},
		"many":         {"---\nmetadata: [" + strings.Repeat("a,", 6000) + "]\n---\n", "or 5000 values", true},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.text), known()); err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrTooLarge) != c.large {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestNone(t *testing.T) {
	d := load(t, "testdata/broken/none.md")
	if d.Found || len(d.Warnings) > 0 || d.Body != "# Only a page\n\nNothing before it.\n" || d.BodyLine != 1 {
		t.Errorf("%+v", d)
	}
}

// A bomb of aliases costs what it weighs.
func TestAliases(t *testing.T) {
	text := "---\na: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'z'; c++ {
		text += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 10) + "]\n"
	}
	d, err := Parse([]byte(text+"---\n"), known())
	f, _ := d.Get("c")
	if list, ok := f.Value.([]any); err != nil || !ok || len(list) != 10 || list[0] != "*b" {
		t.Errorf("%v, %v", f, err)
	}
}

// Of very many faults a few are told.
func TestManyFaults(t *testing.T) {
	d, err := Parse([]byte("---\n"+strings.Repeat("name: a\n", 100)+"---\n"), known())
	if err != nil || len(d.Warnings) != maxTold+1 || d.Warnings[maxTold].String() != "and 79 more faults" || len(d.Fields) != 1 {
		t.Errorf("%d warnings, %v, %v", len(d.Warnings), d.Fields, err)
	}
}

func TestLists(t *testing.T) {
	for _, c := range []struct {
		yaml string
		want []string
	}{
		{"", nil},
		{"tools:", []string{}},
		{"tools: []", []string{}},
		{`tools: ""`, []string{}},
		{"tools: Read", []string{"Read"}},
		{"tools: Read, Grep,Glob", []string{"Read", "Grep", "Glob"}},
		{"tools: Read Grep", []string{"Read", "Grep"}},
		{"tools: Bash(git add:*, git commit:*), Read", []string{"Bash(git add:*, git commit:*)", "Read"}},
		{"tools: Agent(a b) Read)", []string{"Agent(a b)", "Read)"}},
		{"tools: [Read, 'two words', 3, {a: b}, null, ' ']", []string{"Read", "two words", "3"}},
		{"tools: ['*']", []string{"*"}},
		{"tools:\n- Read\n- server/*", []string{"Read", "server/*"}},
	} {
		d, err := Parse([]byte("---\n"+c.yaml+"\n---\n"), known())
		if got := d.List("tools"); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q: %#v, %v", c.yaml, got, err)
		}
	}
}

func TestTypes(t *testing.T) {
	d, err := Parse([]byte("---\ndescription: 4.10\nmodel: on\nmetadata: {a: true, b: 7, c: 1.5, d: null, e: .inf, f: 2024-01-01, g: 'true'}\nname: ~\n---\n"), known())
	if err != nil {
		t.Fatal(err)
	}
	if d.Text("description") != "4.10" || d.Text("model") != "on" || d.Text("name") != "" || d.Text("metadata") != "" || d.Text("color") != "" {
		t.Errorf("texts %v", d.Fields)
	}
	want := fields{"a": true, "b": int64(7), "c": 1.5, "d": nil, "e": ".inf", "f": "2024-01-01", "g": "true"}
	if f, _ := d.Get("metadata"); !reflect.DeepEqual(f.Value, want) || f.Line != 4 {
		t.Errorf("%#v", f)
	}
	if d.Fields[0].Line != 2 || d.Fields[3].Key != "name" {
		t.Errorf("order %v", d.Fields)
	}
}

// Every file of a collection of working definitions loads, and nothing is said
// of any. A larger one than that in testdata is named by DROVER_TEST_AGENTS.
func TestReal(t *testing.T) {
	dirs := []string{"testdata/real"}
	if more := os.Getenv("DROVER_TEST_AGENTS"); more != "" {
		dirs = append(dirs, more)
	} else {
		t.Log("DROVER_TEST_AGENTS is not set: only the sample in testdata was read")
	}
	for _, dir := range dirs {
		count := 0
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || filepath.Ext(path) != ".md" || e.Name() == "README.md" {
				return err
			}
			count++
			d := load(t, path)
			if !d.Found || len(d.Warnings) > 0 || d.Tolerant || d.Text("description") == "" || strings.TrimSpace(d.Body) == "" {
				t.Errorf("%s: %v, description %.40q, body of %d bytes", path, d.Warnings, d.Text("description"), len(d.Body))
			}
			return nil
		})
		if err != nil || count < 8 {
			t.Errorf("%s: %d files, %v", dir, count, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("testdata/*/*.md")
	if err != nil {
		f.Fatal(err)
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("---\na: [[[[{{{{\n---"))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data, known())
		if err != nil {
			if len(d.Fields) > 0 {
				t.Errorf("fields beside the error %v", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, field := range d.Fields {
			if seen[field.Key] {
				t.Errorf("key %q twice", field.Key)
			}
			seen[field.Key] = true
		}
		text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
		if !strings.HasSuffix(text, d.Body) {
			t.Errorf("body %q is not the end of the file", d.Body)
		}
		if before := text[:len(text)-len(d.Body)]; d.Body != "" && strings.Count(before, "\n") != d.BodyLine-1 {
			t.Errorf("the body begins at line %d, not %d", strings.Count(before, "\n")+1, d.BodyLine)
		}
	})
}

// Blank lines before the front matter, the line ends of old systems and capitals in keys hide nothing.
func TestEdges(t *testing.T) {
	const plain = "---\nname: odd\ntools: Read\nname: twice\n---\nBody\n"
	for name, text := range map[string]string{
		"blank lines":    "\n \n" + plain,
		"mark, blanks":   "\ufeff\n\n" + plain,
		"line ends":      "\n\n" + strings.ReplaceAll(plain, "\n", "\r"),
		"capitals":       "\n\n" + strings.Replace(plain, "tools", "Tools", 1),
		"all, with CRLF": "\r\n\r\n" + strings.ReplaceAll(strings.Replace(plain, "tools", "TOOLS", 1), "\n", "\r\n"),
	} {
		d, err := Parse([]byte(text), known())
		if err != nil || !d.Found || d.Text("name") != "odd" || d.Text("tools") != "Read" || d.Body != "Body\n" || d.BodyLine != 8 {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
		if f, _ := d.Get("tools"); f.Line != 5 || d.Warnings[0].Line != 6 {
			t.Errorf("%s: line %d, %v", name, f.Line, d.Warnings)
		}
	}
	if d, err := Parse([]byte("\n---\na rule in a text\n"), known()); err != nil || d.Found {
		t.Errorf("%+v, %v", d, err)
	}
}
