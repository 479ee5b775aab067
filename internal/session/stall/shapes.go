package stall

// The shapes of lines, as regular expressions over [plain] text in either case of letters.

// known are the seven patterns of prompts, by which a line asks even if a line
// break follows.
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

// answered is a question with its answer behind it.
const answered = `\?(?: *[(\[][^()\[\]]*[)\]])? *(?:y|n|yes|no)(?: \([^()]*\))?$`

// surest are open lines that ask however often they were written.
func surest() []string {
	return []string{`[\[(](?:y/n|yes/no)[\])] *[:?]? *$`, `\b(?:press|hit|push) \W?(?:any key|a key|enter|return|space)\b`}
}

// sure are open lines that can be nothing else.
func sure() []string {
	return []string{
		`(?:password|passphrase|pass phrase|passcode|pin|otp|token|secret|api key|username|user name|login|` +
			`(?:verification|security|authorization|one-time) code)\b.{0,80}: *$`,
		`^--more--`, `^(?:\S{1,80} )?\(end\)$`, `^lines \d+-\d+`, `^[:*&?] ?$`, // pagers, ed, mail, a debugger
		`^-{2,3}.*\b(?:more|continue|quit)\b.*-{2,3}$`,
	}
}

// tells are open lines that look like questions and are none.
func tells() []string {
	const work = `(?:await|wait|connect|load|install|process|download|upload|fetch|receiv|send|copy|read|` +
		`writ|check|scann|search|look|compil|build|link|pack|unpack|extract|updat|upgrad|configur|resolv|retry|test|` +
		`runn|start|stopp|generat|creat|delet|remov|import|export|synchroni[sz]|index|poll|sleep|listen|stream)ing`
	return append(gauges(),
		`^\S+(?:::|#)\S`, `^\s*\* test\b`, // names of tests, which may be questions
		`^\s*(?:[?*•-] |\S+ )?`+work+`\b[^.,;!?]*[?:)\]] *$`, // doing this or that, even if it ends like a question
		`^\s*(?:[^\s?]+ )?\w+ing\b[^?>\[]*[:)] *$`,           // Doing this or that:
		answered,
		`\b\d+(?:\.\d+)? ?%(?:[^)]|$)`, // 12 % of it, but not --More--(12%)
		`\b(?:eta|elapsed|remaining|its?/s)\b[^?]*$`, // for some time
		`^\s*\[?(?:info|warn|warning|debug|trace|error|note|notification|fatal)\]?(?:$|[^\w>][^?]*$)`,
		`(?:^|[\s\[])\d+/\d+\b[^?:>]*$`, // so many of so many
		`[^.?]\.{3,} *$`,                // and so on ...
	)
}

// gauges are lines that tell how far something is, or that it is at work, wherever on
// a screen they stand. A program that shows them waits for nobody.
func gauges() []string {
	return []string{
		`\d ?(?:[kmgt]i?)?(?:b|bytes|bits?)/s`, // at some speed
		`^[^\pL\d]*\d{1,3}(?:\.\d+)? ?%`,       // a percentage first, or behind a bar
		`\b(?:eta|elapsed|remaining)(?: time)?\W{0,3}\d|\d\W?\w{0,7} (?:elapsed|remaining|left)\b`,
		`^\W*(?:please wait\b|\w+ing\b[^?]{0,60}(?:\.{3}|…)(?: \([^()]*\))?\W*$)`,
		`[\x{2801}-\x{28ff}]`,                      // a spinner of dots
		`\bload average\b|^every \d+(?:\.\d+)?s: `, // what shows a machine, or a command again and again
		`(?:\s+\d+[.:]\d+%?){3}|\d +\d+ +\d+% +\d`, // a table of what is measured
		`\[[=#*>.-]{2,}[=#*>. -]+\]`,               // a bar
	}
}

// asks are open lines that ask.
func asks() []string {
	return []string{
		`(?:[:>$#%»❯➜?*=)\]}]|^(?:[^\w\s]{1,4} )?[^\w\s]{1,4}) {1,3}$`, // a sign and a space behind it, where one types
		`[\w"')\]>.…#] ?\?["')\]]* *:? *$`,                             // any question
		`[)\]]:$`, `^[^<]{0,60}>$`,                                     // name [default]: and prompts without the space
		drawn,
		`^\? \S`, // as many programs for setting up begin a question
		`\? *(?:\.\.\.|[(\[][^()\[\]]*[)\]])$`,
		`\? *(?:y|yes) ?(?:/|or) ?(?:n|no)\b *:? *$`,
		`\b(?:enter|return) to \w+`,
		`^(?:[^:]{0,60} )?(?:hit|press|type|push) (?:any key|a key|enter|return|space|<?\w+>? to\b)`,
		`^\s*[◯◻□☐⬡] {1,4}\S`,                           // what may be chosen
		`(?:[\[(][a-z][\])] ?[a-z][\w ]{0,20}\W*){2,}$`, // [Y]es [N]o
	}
}

// commands are closed lines that tell what to type.
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

// tellsOf are lines in which a question is quoted, or is the name of a test or a
// remark on a place in a file.
func tellsOf() []string {
	return []string{
		`^\s*› press\b`, // keys of what watches files
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

// itemShapes are that of every item of a menu, and that of the one which a press of
// Enter would take.
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

// words are those by which programs ask in other languages, or tell that they are at
// work, each followed by what it is in English. Here are those without which a
// captured prompt is missed, or progress taken for one: most prompts of any language
// are seen by the signs at their ends.
func words() []string {
	return []string{
		"パスワード", " password ",
		"appuyez sur", "press", "pulse", "press", "pressione", "press",
		"entrée", "enter", "cualquier tecla", "any key", "キーを押", " press any key ",
		"正在", " working ", "しています", " working ",
		"wird", "working", "chargement", "working", "загрузка", "working",
	}
}
