package workflow

import (
	"path"
	"slices"
	"strings"
)

// isShell reports whether the program that runs a script is a shell.
func isShell(interpreter []string) bool {
	words := strings.Fields(strings.Join(interpreter, " "))
	if path.Base(words[0]) == "env" {
		words = slices.DeleteFunc(words[1:], func(w string) bool { return strings.HasPrefix(w, "-") || strings.Contains(w, "=") })
	}
	return len(words) > 0 && slices.Contains([]string{"sh", "ash", "bash", "busybox", "dash", "ksh", "mksh", "zsh"}, path.Base(words[0]))
}

// shellReader reads a script as a shell does, as far as it has to in order to know
// whether what follows stands inside quotes. It knows what POSIX shells and bash
// quote by: quotes, backslashes, here-documents, comments, and substitutions, inside
// which quoting begins again.
type shellReader struct {
	open    []shellPart // what has begun and not ended, the innermost last
	escaped bool        // a backslash was before
	last    byte        // as read
	angles  int         // so many "<" were before
	mark    *hereMark   // being read
	marks   []hereMark  // of here-documents that begin at the end of the line
}

// shellPart is a part of a script that has its own rules of quoting.
type shellPart struct {
	kind    partKind
	inText  bool   // of partBraces: in double quotes or a here-document
	parens  int    // of code: open parentheses
	cases   int    // of code: open case commands, whose patterns end with a parenthesis
	word    string // of code: the word being read, "?" for what is not a keyword
	running bool   // of code: the command's first word was read
	here    hereMark
	line    []byte // of partHere: the line being read
}

type partKind byte

const (
	partScript     partKind = iota // and nothing else
	partCommand                    // $(…)
	partBackquotes                 // `…`
	partArithmetic                 // ((…))
	partComment
	partSingle // '…'
	partEscape // $'…'
	partDouble // "…"
	partBraces // ${…}
	partHere   // a here-document
)

// hereMark is the word that ends a here-document.
type hereMark struct {
	word    string
	tabs    bool // before it do not count: <<-
	literal bool // it was quoted: nothing in the document is substituted
	begun   bool
	quote   byte // that is open
}

func newShellReader() *shellReader { return &shellReader{open: make([]shellPart, 1), last: '\n'} }

func (s *shellReader) clone() *shellReader {
	c := *s
	c.open, c.marks = slices.Clone(s.open), slices.Clone(s.marks)
	for i := range c.open {
		c.open[i].line = slices.Clone(c.open[i].line)
	}
	if s.mark != nil {
		mark := *s.mark
		c.mark = &mark
	}
	return &c
}

// quoted reports whether what is read next stands inside quotes or a here-document:
// where quotes around a word would be part of the text.
func (s *shellReader) quoted() bool {
	switch in := s.in(); in.kind {
	case partSingle, partEscape, partDouble, partHere:
		return true
	case partBraces:
		return in.inText
	}
	return false
}

// backquoted reports whether what is read next stands in `…`, where a backslash, a dollar sign
// and a backquote need a backslash also inside quotes.
func (s *shellReader) backquoted() bool {
	return slices.ContainsFunc(s.open, func(p shellPart) bool { return p.kind == partBackquotes })
}

func (s *shellReader) in() *shellPart { return &s.open[len(s.open)-1] }

func (s *shellReader) push(p shellPart) { s.open = append(s.open, p) }

func (s *shellReader) pop() { s.open = s.open[:len(s.open)-1] }

func (s *shellReader) read(text string) {
	for i := range len(text) {
		c, escaped := text[i], s.escaped
		s.next(c)
		if s.last = c; escaped {
			s.last = '?' // it has no meaning for what follows
		}
		if c != '<' {
			s.angles = 0
		}
	}
}

func (s *shellReader) next(c byte) {
	in := s.in()
	switch {
	case in.kind == partSingle:
		if c == '\'' {
			s.pop()
		}
	case in.kind == partComment:
		if c == '\n' {
			s.pop()
			s.code(c)
		}
	case in.kind == partHere && in.here.literal:
		s.document(c)
	case s.mark != nil:
		s.readMark(c)
	case s.angles == 2 && c != '<' && in.kind != partArithmetic:
		s.mark = &hereMark{}
		s.readMark(c)
	case s.escaped:
		s.escaped = false
		in.lineHas(c)
	case c == '\\':
		s.escaped = true
		in.word = "?"
		in.lineHas(c)
	case in.kind == partEscape:
		if c == '\'' {
			s.pop()
		}
	case c == '`':
		in.lineHas(c)
		s.backquote()
	case c == '(' && s.last == '$':
		s.push(shellPart{kind: partCommand})
	case c == '{' && s.last == '$':
		s.push(shellPart{kind: partBraces, inText: s.quoted()})
	case in.kind == partHere:
		s.document(c)
	case in.kind == partDouble:
		if c == '"' {
			s.pop()
		}
	case c == '"':
		in.word = "?"
		s.push(shellPart{kind: partDouble})
	case c == '\'' && !in.inText:
		in.word = "?"
		kind := partSingle
		if s.last == '$' {
			kind = partEscape
		}
		s.push(shellPart{kind: kind})
	case in.kind == partBraces:
		if c == '}' {
			s.pop()
		}
	default:
		s.code(c)
	}
}

// backquote begins a substitution, or ends the one that is open.
func (s *shellReader) backquote() {
	for i := range slices.Backward(s.open) {
		if s.open[i].kind == partBackquotes {
			s.open = s.open[:i]
			return
		}
	}
	s.push(shellPart{kind: partBackquotes})
}

// code reads what stands outside of quotes.
func (s *shellReader) code(c byte) {
	in := s.in()
	if c == '<' {
		s.angles++
	}
	if !strings.ContainsRune(" \t\n;&|()<>", rune(c)) {
		if c == '#' && strings.IndexByte(" \t\n;&|(`", s.last) >= 0 && in.kind != partArithmetic {
			s.push(shellPart{kind: partComment})
			return
		}
		if len(in.word) < len("until?") {
			in.word += string(c)
		}
		return
	}
	s.endWord(in)
	switch c {
	case '\n', ';', '&', '|':
		in.running = false
	case '(':
		in.running = false
		if s.last == '(' {
			s.push(shellPart{kind: partArithmetic}) // its end is the first of two
			return
		}
		in.parens++
	case ')':
		s.closeParen(in)
	}
	if c == '\n' && len(s.marks) > 0 {
		s.push(shellPart{kind: partHere, here: s.marks[0]})
		s.marks = s.marks[1:]
	}
}

func (s *shellReader) closeParen(in *shellPart) {
	in.running = false
	switch {
	case in.parens > 0:
		in.parens--
	case in.kind == partArithmetic:
		s.pop()
	case in.cases > 0: // the end of a pattern
	case in.kind == partCommand:
		s.pop()
	}
}

// endWord reads the word that has ended: a keyword, or the first of a command.
func (s *shellReader) endWord(in *shellPart) {
	word := in.word
	in.word = ""
	if word == "" || in.running {
		return
	}
	switch word {
	case "case":
		in.cases++
	case "esac":
		in.cases = max(0, in.cases-1)
	case "then", "do", "else", "elif", "if", "while", "until", "!", "{":
		return
	}
	in.running = true
}

// readMark reads the word that ends a here-document.
func (s *shellReader) readMark(c byte) {
	m := s.mark
	switch {
	case s.escaped:
		s.escaped = false
		m.word += string(c)
	case m.quote != 0:
		if c == m.quote {
			m.quote = 0
		} else {
			m.word += string(c)
		}
	case !m.begun && c == '-' && !m.tabs:
		m.tabs = true
	case !m.begun && (c == ' ' || c == '\t'):
	case c == '\\':
		s.escaped, m.literal, m.begun = true, true, true
	case c == '\'' || c == '"':
		m.quote, m.literal, m.begun = c, true, true
	case strings.ContainsRune(" \t\n;&|()<>", rune(c)):
		s.mark, s.marks = nil, append(s.marks, *m)
		s.code(c)
	default:
		m.begun = true
		m.word += string(c)
	}
}

// document reads a here-document.
func (s *shellReader) document(c byte) {
	in := s.in()
	if c != '\n' {
		in.lineHas(c)
		return
	}
	line := string(in.line)
	if in.here.tabs {
		line = strings.TrimLeft(line, "\t")
	}
	in.line = in.line[:0]
	if line != in.here.word {
		return
	}
	s.pop()
	if len(s.marks) > 0 {
		s.push(shellPart{kind: partHere, here: s.marks[0]})
		s.marks = s.marks[1:]
	}
}

// lineHas adds c to the line of a here-document.
func (p *shellPart) lineHas(c byte) {
	if p.kind == partHere {
		p.line = append(p.line, c)
	}
}
