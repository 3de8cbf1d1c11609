package main

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// serviceSpace is many services of one instance each, with a template for
// each. All are on one node, so that reading the node's services costs as much as
// possible.
type serviceSpace struct {
	consul    *consul
	instances []instance
}

func newServiceSpace(n int) func(string, *consul) space {
	return func(name string, c *consul) space {
		s := &serviceSpace{consul: c}
		for i := range n {
			service := fmt.Sprintf("%s-%04d", name, i)
			s.instances = append(s.instances, instance{
				node: name + "-node", service: service, id: service + "-1", address: "10.0.0.2", port: 20000 + i, status: "passing",
			})
		}
		return s
	}
}

func (s *serviceSpace) fill(ctx context.Context) error {
	return fillInstances(ctx, s.consul, s.instances)
}

// fillInstances registers them, and first their node.
func fillInstances(ctx context.Context, c *consul, list []instance) error {
	node := map[string]any{"Node": list[0].node, "Address": "10.0.0.1"}
	if err := c.putJSON(ctx, "/v1/catalog/register", node); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, i := range list {
		g.Go(func() error { return c.register(ctx, i) })
	}
	return g.Wait()
}

func (s *serviceSpace) template(i int) string {
	return fmt.Sprintf("{{ range service \"%s|passing,warning\" }}server {{ .Address }}:{{ .Port }} # {{ .Status }}\n{{ end }}", s.instances[i].service)
}

func (s *serviceSpace) content(i int) string {
	in := s.instances[i]
	return fmt.Sprintf("server %s:%d # %s\n", in.address, in.port, in.status)
}

// flipCheck changes a passing check to warning, or a warning one to passing.
func flipCheck(ctx context.Context, s space, i, _ int) error {
	v := s.(*serviceSpace)
	in := &v.instances[i]
	if in.status == "passing" {
		in.status = "warning"
	} else {
		in.status = "passing"
	}
	return v.consul.setCheck(ctx, *in)
}

// movePort registers the instance with another port; its check is not touched.
func movePort(ctx context.Context, s space, i, n int) error {
	v := s.(*serviceSpace)
	v.instances[i].port = 30000 + n
	return v.consul.registerAgain(ctx, v.instances[i])
}

// serviceWork is n services on one node, one template for each.
func serviceWork(n int, s size) *work {
	name := fmt.Sprintf("%d services", n)
	return &work{
		name: name, templates: n, space: newServiceSpace(n), own: ownConsul, idle: true, maxIdle: 0.3, memory: true,
		steps: []step{
			{
				what: "change → file, " + name + ", a check changes", limit: 5, samples: s.samples * 2 / 3, gap: gapOther, change: flipCheck,
			}, {
				what: "change → file, " + name + ", registered again without checks", limit: 8, samples: s.samples * 2 / 3,
				gap: gapOther, change: movePort,
			},
		},
	}
}

// poolSpace is one service of a few instances that many templates use.
type poolSpace struct {
	consul    *consul
	instances []instance
}

func newPoolSpace(name string, c *consul) space {
	s := &poolSpace{consul: c}
	for i := range 3 {
		s.instances = append(s.instances, instance{
			node: name + "-node", service: name + "-web", id: fmt.Sprintf("%s-web-%d", name, i), address: fmt.Sprintf("10.0.1.%d", i),
			port: 8000 + i, status: "passing",
		})
	}
	return s
}

func (s *poolSpace) fill(ctx context.Context) error { return fillInstances(ctx, s.consul, s.instances) }

func (s *poolSpace) template(i int) string {
	return fmt.Sprintf("# file %d\n{{ range service %q }}server {{ .Address }}:{{ .Port }}\n{{ end }}", i, s.instances[0].service)
}

func (s *poolSpace) content(i int) string {
	text := fmt.Sprintf("# file %d\n", i)
	for _, in := range s.instances {
		text += fmt.Sprintf("server %s:%d\n", in.address, in.port)
	}
	return text
}

// poolWork is n templates of one service.
func poolWork(n int, s size) *work {
	return &work{
		name: fmt.Sprintf("%d templates of one service", n), templates: n, space: newPoolSpace,
		steps: []step{{
			what: fmt.Sprintf("change → last file, %d templates of one service", n), limit: noTarget, ofFloor: 1.15, samples: s.few, gap: gapSame, all: true,
			change: func(ctx context.Context, s space, _, n int) error {
				v := s.(*poolSpace)
				v.instances[1].port = 9000 + n
				return v.consul.registerAgain(ctx, v.instances[1])
			},
		}},
	}
}
