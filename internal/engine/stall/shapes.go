package stall

// Shapes of lines, as regular expressions over [plain] text, ignoring case.

// known are the seven patterns of prompts that count even if a line break follows.
func known() []string {
	return []string{
		`\(y/n\)`,
		`\[y/n\]`,
		`\(yes/no\)`,
		`\b(?:do you|would you|shall i|are you sure)\b.*\? *$`,
		`press (?:any key|enter)`,
		`continue\?`,
		`overwrite\?`,
	}
}

// drawn is a prompt with a cursor that the program draws.
const drawn = `[:>?»›❯] ?█ *$`

// answered is a question followed by its answer.
const answered = `\?(?: *[(\[][^()\[\]]*[)\]])? *(?:y|n|yes|no)(?: \([^()]*\))?$`

// surest are open lines that are prompts however often they were overwritten.
func surest() []string {
	return []string{`[\[(](?:y/n|yes/no)[\])] *[:?]? *$`, `\b(?:press|hit|push) \W?(?:any key|a key|enter|return|space)\b`}
}

// sure are open lines that are certainly prompts.
func sure() []string {
	return []string{
		`(?:password|passphrase|pass phrase|passcode|pin|otp|token|secret|api key|username|user name|login|` +
			`(?:verification|security|authorization|one-time) code)\b.{0,80}: *$`,
		`^--more--`, `^(?:\S{1,80} )?\(end\)$`, `^lines \d+-\d+`, `^[:*&?] ?$`, // pagers, ed, mail, a debugger
		`^-{2,3}.*\b(?:more|continue|quit)\b.*-{2,3}$`,
	}
}

// tells are open lines that look like questions and are not.
func tells() []string {
	const work = `(?:await|wait|connect|load|install|process|download|upload|fetch|receiv|send|copy|read|` +
		`writ|check|scann|search|look|compil|build|link|pack|unpack|extract|updat|upgrad|configur|resolv|retry|test|` +
		`runn|start|stopp|generat|creat|delet|remov|import|export|synchroni[sz]|index|poll|sleep|listen|stream)ing`
	return append(gauges(),
		`^\S+(?:::|#)\S`, `^\s*\* test\b`, // names of tests, which may be questions
		`^\s*(?:[?*•-] |\S+ )?`+work+`\b[^.,;!?]*[?:)\]] *$`, // present participles, even if it ends like a question
		`^\s*(?:[^\s?]+ )?\w+ing\b[^?>\[]*[:)] *$`,           // Doing this or that:
		answered,
		`\b\d+(?:\.\d+)? ?%(?:[^)]|$)`, // 12 % of it, but not --More--(12%)
		`\b(?:eta|elapsed|remaining|its?/s)\b[^?]*$`, // a duration
		`^\s*\[?(?:info|warn|warning|debug|trace|error|note|notification|fatal)\]?(?:$|[^\w>][^?]*$)`,
		`(?:^|[\s\[])\d+/\d+\b[^?:>]*$`, // a count of a total
		`[^.?]\.{3,} *$`,                // an ellipsis
	)
}

// gauges are lines that show progress, anywhere on a screen. A program that shows them does not
// wait.
func gauges() []string {
	return []string{
		`\d ?(?:[kmgt]i?)?(?:b|bytes|bits?)/s`, // a rate
		`^[^\pL\d]*\d{1,3}(?:\.\d+)? ?%`,       // a percentage first, or after a bar
		`\b(?:eta|elapsed|remaining)(?: time)?\W{0,3}\d|\d\W?\w{0,7} (?:elapsed|remaining|left)\b`,
		`^\W*(?:please wait\b|\w+ing\b[^?]{0,60}(?:\.{3}|…)(?: \([^()]*\))?\W*$)`,
		`[\x{2801}-\x{28ff}]`,                      // a spinner of dots
		`\bload average\b|^every \d+(?:\.\d+)?s: `, // monitoring of a machine, or of a repeated command
		`(?:\s+\d+[.:]\d+%?){3}|\d +\d+ +\d+% +\d`, // a table of measurements
		`\[[=#*>.-]{2,}[=#*>. -]+\]`,               // a bar
	}
}

// asks are open lines that are prompts.
func asks() []string {
	return []string{
		`(?:[:>$#%»❯➜?*=)\]}]|^(?:[^\w\s]{1,4} )?[^\w\s]{1,4}) {1,3}$`, // a prompt sign and a space
		`[\w"')\]>.…#] ?\?["')\]]* *:? *$`,                             // any question
		`[)\]]:$`, `^[^<]{0,60}>$`,                                     // name [default]: and prompts without the space
		drawn,
		`^\? \S`, // as many installers begin a question
		`\? *(?:\.\.\.|[(\[][^()\[\]]*[)\]])$`,
		`\? *(?:y|yes) ?(?:/|or) ?(?:n|no)\b *:? *$`,
		`\b(?:enter|return) to \w+`,
		`^(?:[^:]{0,60} )?(?:hit|press|type|push) (?:any key|a key|enter|return|space|<?\w+>? to\b)`,
		`^\s*[◯◻□☐⬡] {1,4}\S`,                           // choices
		`(?:[\[(][a-z][\])] ?[a-z][\w ]{0,20}\W*){2,}$`, // [Y]es [N]o
	}
}

// commands are closed lines that tell the user what to type.
func commands() []string {
	const end = `to (?:continue|proceed|confirm|go (?:on|ahead))`
	return []string{
		`\b` + end + `,? (?:type|press|enter|hit)\b|^(?:please )?type \W?\w+\W? .{0,40}\b` + end + `\b`,
		`^(?:please )?(?:enter|choose|select|specify|provide|confirm|paste|` +
			`(?:type|insert) (?:in )?(?:the|an?|your|['"]))\b.{3,120}:$`,
		`(?:^\W*(?:please )?|[,;.] (?:then |and )?)(?:press|hit|push) \W?(?:return|enter|space|any key|a key)\b`,
		`[\[(]y(?:es)?(?:\||, ?)no?[\])]$`, `^[\[(]\w{1,12}(?:[/|,] ?\w{1,12})+[\])] ?[?:]$`, // [s/i/l/p]?
		`\? *[\[(][^\[\]()]*(?: = | \| | or |, |\bdefault: ?)[^\[\]()]*[\])]$`, // Really? [return = yes | esc = no]
		`\b(?:ctrl\W?d|\^d|end of file)\b.{0,30} to (?:finish|end|send|save|submit)\b`,
		`\[[^\[\]]*\((?:return|enter|esc|ctrl-\w)\)[^\[\]]*\]$`, // [ view (return) | quit (ctrl-c) ]
		`^\W*(?:\(\w\)\w[\w-]*,? ){2,}\(\w\)\w[\w-]*$`,          // (a)bort (c)ontinue (k)ill
	}
}

// tellsOf are lines that quote a question, or are the name of a test or a remark on a place in
// a file.
func tellsOf() []string {
	return []string{
		`^\s*› press\b`, // keys of a program that watches files
		`^\s*(?:=== |--- |# |[✓✔✗✘×√] |(?:not )?ok \d|\S+ \.{2,} )`, `^\s*\S+\.\w+:\d+(?::\d+)?: `,
		"[\"'`][^\"'`]*\\?(?: [\\[(][^\\])]*[\\])])? ?[\"'`](?: \\S|[,;}\\]])",
		answered,
	}
}

// logLines begin with a time or an address.
func logLines() []string {
	const level = `(?:info|warn|warning|debug|trace|error|note|notification|fatal)`
	return []string{
		`^\s*[\[(]?(?:` + level + `\W{1,3})?(?:\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d)\b`,
		`^(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec) [ \d]\d \d\d:\d\d:\d\d `,
		`^\d{1,3}(?:\.\d{1,3}){3} `, `^\s*\{"`, `^\w+=\S+ \w+=`, `^[\da-f]{7,40} `,
	}
}

// itemShapes match every item of a menu, and the selected one, which Enter would choose.
func itemShapes() []string {
	return []string{`^(?: {0,6}[❯›»‣▸▶→>◯◉○●◻◼□☐☑] {0,4}| {1,6})\S.{0,78}$`, `^ {0,6}[❯›»‣▸▶→>] {0,4}\S`}
}

// menuHeads are lines above a menu.
func menuHeads() []string {
	return []string{
		`^\? \S`, `\barrow[- ]?keys\b|\barrows to move\b|<space> to select|\btype to \w+\]`,
		`[\w"')\]] ?\? *(?:\([^()]*\))? *$`,
	}
}

// words maps words of prompts and of progress in other languages to English ones. It has those
// that are needed for captured outputs; most prompts of any language are found by the signs at
// their ends.
func words() []string {
	return []string{
		"パスワード", " password ",
		"appuyez sur", "press", "pulse", "press", "pressione", "press",
		"entrée", "enter", "cualquier tecla", "any key", "キーを押", " press any key ",
		"正在", " working ", "しています", " working ",
		"wird", "working", "chargement", "working", "загрузка", "working",
	}
}
