package watch

import (
	"container/list"
	"errors"
	"sync"
	"text/template"

	ct "github.com/hashicorp/consul-template/template"
)

// consul-template builds its three hundred functions and parses the template
// for every execution, which costs more than most templates themselves. For those
// that use its functions there are hot templates (see runPlain for the others). A hot
// template is one such execution that does not end: it renders its own text
// once for each turn it is given. The text before the user's is
//
//	{{ if jorcMain }}{{ range jorcTurns }}{{ jorcDone (executeTemplate "") }}{{ end }}{{ jorcStop }}{{ end }}
//
// jorcMain is true for the outer run only, executeTemplate "" runs the whole
// text once more, as the inner one.
const (
	hotMain  = "jorcMain"
	hotTurns = "jorcTurns"
	hotDone  = "jorcDone"
	hotStop  = "jorcStop"
)

func (s *source) hotText() string {
	l, r := s.left, s.right
	if l == "" {
		l = "{{"
	}
	if r == "" {
		r = "}}"
	}
	return l + " if " + hotMain + " " + r + l + " range " + hotTurns + " " + r +
		l + " " + hotDone + ` (executeTemplate "") ` + r + l + " end " + r + l + " " + hotStop + " " + r + l + " end " + r + s.text
}

// hot is a template that waits for its next turn. It belongs to one caller at
// a time.
type hot struct {
	source  *source
	x       *execution // of the present turn
	turns   chan struct{}
	outputs chan string
	dead    chan struct{} // closed when it has ended, for whatever reason
	outer   bool
	scratch *ct.Scratch
	busy    bool // the pool's
}

var errCold = errors.New("the template is no longer hot")

// heat starts a hot template; it ends when turns is closed, or with the first
// turn that fails.
func heat(s *source, wg *sync.WaitGroup) *hot {
	h := &hot{
		source: s, x: &execution{source: s, opts: s.opts}, outer: true,
		turns: make(chan struct{}), outputs: make(chan string), dead: make(chan struct{}),
	}
	functions := h.x.functions()
	functions[hotMain] = h.isOuter
	functions[hotTurns] = h.eachTurn
	functions[hotDone] = h.done
	functions[hotStop] = func() (string, error) { return "", errCold }
	functions["scratch"] = func() *ct.Scratch { return h.scratch }
	wg.Go(func() {
		defer close(h.dead)
		h.live(functions)
	})
	return h
}

func (h *hot) live(functions template.FuncMap) {
	// How it ends is of no interest: a turn that fails is run again by itself,
	// and that run has the error.
	defer func() { _ = recover() }()
	s := h.source
	t, err := ct.NewTemplate(&ct.NewTemplateInput{
		Contents: s.hotText(), Destination: s.destination, LeftDelim: s.left, RightDelim: s.right,
		ErrMissingKey: s.missingKey, ExtFuncMap: functions,
	})
	if err == nil {
		_, _ = t.Execute(&ct.ExecuteInput{Brain: ct.NewBrain()})
	}
}

func (h *hot) isOuter() bool {
	outer := h.outer
	h.outer = false
	return outer
}

func (h *hot) eachTurn() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for range h.turns {
			h.scratch = &ct.Scratch{}
			if !yield(0) {
				return
			}
		}
	}
}

func (h *hot) done(output string) string {
	h.outputs <- output
	return ""
}

// run gives the template a turn as x. ok is false when the turn failed, or
// could not be taken.
func (h *hot) run(x *execution) (output string, ok bool) {
	*h.x = *x
	select {
	case h.turns <- struct{}{}:
	case <-h.dead:
		return "", false
	}
	select {
	case output = <-h.outputs:
		ok = true
	case <-h.dead:
	}
	*x = *h.x
	return output, ok
}

// hotTemplates bounds the templates that are kept hot: each takes some 150 KB.
const hotTemplates = 128

// pool keeps templates hot: the ones executed last among all that are executed
// repeatedly.
type pool struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	runs   map[*source]int
	places map[*source]*list.Element
	order  *list.List // of *hot; the one used last is in front
}

func newPool() *pool {
	return &pool{runs: map[*source]int{}, places: map[*source]*list.Element{}, order: list.New()}
}

// take returns s's hot template, or nil while it is not worth one. It belongs
// to the caller until give.
func (p *pool) take(s *source) *hot {
	if p == nil || s.plain || len(s.denylist) > 0 || s.text == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.places[s]; ok {
		h := e.Value.(*hot)
		p.order.MoveToFront(e)
		h.busy = true
		return h
	}
	p.runs[s]++
	if p.runs[s] < 4 {
		return nil
	}
	h := heat(s, &p.wg)
	h.busy = true
	p.places[s] = p.order.PushFront(h)
	for e := p.order.Back(); e != nil && p.order.Len() > hotTemplates; {
		before := e.Prev()
		if old := e.Value.(*hot); !old.busy {
			p.drop(old)
		}
		e = before
	}
	return h
}

// give takes a hot template back; one that failed is forgotten.
func (p *pool) give(h *hot, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.busy = false
	if !ok {
		p.runs[h.source] = 0
		p.drop(h)
	}
}

func (p *pool) drop(h *hot) {
	if e, ok := p.places[h.source]; ok {
		p.order.Remove(e)
		delete(p.places, h.source)
		close(h.turns)
	}
}

// close ends all templates and waits for them. None may be taken.
func (p *pool) close() {
	p.mu.Lock()
	for e := p.order.Front(); e != nil; e = p.order.Front() {
		p.drop(e.Value.(*hot))
	}
	p.mu.Unlock()
	p.wg.Wait()
}
