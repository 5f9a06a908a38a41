"""The live page in a browser: what it shows, to whom, and what can be done with keys alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

HOSTILE = [
    "<img src=x onerror=\"document.title='hit'\">",
    "</script><script>document.title='hit'</script>",
    "'\"><svg onload=document.title='hit'>",
    "javascript:document.title='hit'",
    "\u202egpj.exe",
    "\x1b[31mred\x07",
    "dédé für 训练-01 🚂",
    "x" * 300,
    "a\nb",
]

# Whatever is wrong for somebody who sees badly or hears the page: checked by hand, without outside code.
AUDIT = """(() => {
  const bad = [];
  const seen = (e) => e.checkVisibility && e.checkVisibility();
  const named = (e) => (e.getAttribute('aria-label') || (e.getAttribute('aria-labelledby') || '').split(' ').map((i) => (document.getElementById(i) || {}).textContent || '').join('') || (e.labels && [...e.labels].map((l) => l.textContent).join('')) || e.textContent || '').trim();
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  if (new Set(ids).size !== ids.length) bad.push('an id twice');
  for (const e of document.querySelectorAll('[aria-labelledby],[aria-describedby],label[for]')) {
    const to = `${e.getAttribute('aria-labelledby') || ''} ${e.getAttribute('aria-describedby') || ''} ${e.getAttribute('for') || ''}`;
    for (const i of to.split(' ').filter(Boolean)) if (!document.getElementById(i)) bad.push(`no ${i}`);
  }
  for (const e of document.querySelectorAll('button,a,input,select,summary,[role=region],dialog,section,nav,[role=img]')) if (seen(e) && !named(e)) bad.push(`no name: ${e.outerHTML.slice(0, 80)}`);
  for (const e of document.querySelectorAll('table')) if (seen(e)) {
    if ([...e.querySelectorAll('thead th')].some((h) => h.scope !== 'col')) bad.push('a column without scope');
  }
  let level = 0;
  for (const e of document.querySelectorAll('h1,h2,h3')) if (seen(e)) { const now = Number(e.tagName[1]); if (now > level + 1) bad.push(`heading ${e.textContent} skips`); level = now; }
  for (const e of document.querySelectorAll('*')) {
    if (e.tabIndex > 0) bad.push('an order of its own');
    if (e.hasAttribute('style') && e.tagName !== 'svg') bad.push(`a style: ${e.outerHTML.slice(0, 60)}`);
    if ([...e.attributes].some((a) => a.name.startsWith('on'))) bad.push(`a handler: ${e.outerHTML.slice(0, 60)}`);
  }
  for (const one of ['header', 'main', 'nav']) if (document.querySelectorAll(one).length !== 1) bad.push(`not one ${one}`);
  if (!document.documentElement.lang || !document.title) bad.push('no language or title');
  const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgb = (c) => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = c; paint.fillRect(0, 0, 1, 1); return [...paint.getImageData(0, 0, 1, 1).data]; };
  const light = (c) => c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (e) => { for (let n = e; n; n = n.parentElement) { const c = rgb(getComputedStyle(n).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255, 255]; };
  let checked = 0;
  for (const e of document.querySelectorAll('*')) {
    if (!seen(e) || e.closest('.unseen,.skip,[disabled]') || ![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    const inPlot = e.closest('.plot');
    const words = rgb(inPlot ? getComputedStyle(e).fill : getComputedStyle(e).color);
    const rect = e.closest('g.job') && e.parentElement.querySelector('rect.piece');
    const under = rect ? rgb(getComputedStyle(rect).fill) : behind(e);
    const [a, b] = [light(words), light(under)].sort((x, y) => y - x);
    checked += 1;
    if ((a + 0.05) / (b + 0.05) < 4.5) bad.push(`contrast ${((a + 0.05) / (b + 0.05)).toFixed(2)}: ${e.outerHTML.slice(0, 90)}`);
  }
  if (checked < 5) bad.push('nothing to read');
  return [...new Set(bad)];
})()"""


def text(page: Any, node: str) -> str:
    return str(page.run(f"document.getElementById({json.dumps(node)}).innerText"))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_busy_machine_at_all_widths(
    signed_in: Any, busy: Any, served: Any, shots: Path, dark: bool
) -> None:
    page = signed_in(dark=dark)
    for width in (1400, 768, 390):
        page.look(width, dark=dark)
        page.run("window.dispatchEvent(new Event('resize'))")
        page.shot(shots / f"busy-{'dark' if dark else 'light'}-{width}.png")
        # Nothing sticks out sideways; wide tables scroll inside their own frame.
        assert page.run("document.documentElement.scrollWidth") <= width
        assert page.run(AUDIT) == []
    assert page.run("document.querySelectorAll('#devices-list article').length") == 4
    assert page.run("document.querySelectorAll('#queue-rows tr').length") == 18
    assert page.run("document.querySelectorAll('#jobs-rows tr').length") == 7
    assert page.run("document.querySelectorAll('#actions-rows tr').length") == 4
    assert page.run("document.querySelectorAll('#speeds-plot .in').length") == 4
    assert page.run("document.querySelectorAll('#speeds-plot .out').length") == 1
    assert page.run("document.querySelectorAll('#timeline-plot .piece').length") >= 13
    assert "room for dlrm; shorter first; gain in seconds 412" in text(page, "actions-rows")
    assert page.complaints() == []
    assert {url.split("/")[2] for url in page.asked_of() if "://" in url} == {served.url.split("/")[2]}


def test_an_empty_scheduler_says_what_to_do(signed_in: Any, service: Any, shots: Path) -> None:
    service.device_views = []
    page = signed_in(width=390, height=800)
    assert "cotenant submit --name first -- python train.py" in text(page, "jobs-empty")
    assert "cotenant devices --here" in text(page, "devices-empty")
    assert "Nobody waits" in text(page, "queue-empty")
    assert "Nothing to compare yet" in text(page, "speeds-text")
    page.shot(shots / "empty-390.png")
    page.look(1400, dark=True)
    page.shot(shots / "empty-dark-1400.png")
    assert page.run(AUDIT) == []
    assert page.complaints() == []


def test_whoever_is_not_signed_in_sees_a_form_and_nothing_else(
    browser: Any, served: Any, busy: Any, shots: Path
) -> None:
    browser.look(1400)
    browser.go(served.url)
    browser.until("!document.getElementById('sign-in').hidden")
    assert browser.run("document.activeElement.id") == "token"
    assert browser.run(AUDIT) == []
    browser.write("wrong token")
    browser.press("Enter")
    browser.until("document.getElementById('sign-in-error').textContent !== ''")
    assert text(browser, "sign-in-error") == "This token is not known here."
    browser.shot(shots / "sign-in.png")
    assert "resnet50" not in browser.run("document.documentElement.outerHTML")


def test_a_tenant_sees_its_own_jobs_alone(browser: Any, served: Any, service: Any, make: Any) -> None:
    service.views = {
        0: make.view(0, name="mine", tenant="alice"),
        1: make.view(1, name="theirs", tenant="bob"),
    }
    browser.look(1400)
    browser.go(served.url)
    browser.until("!document.getElementById('sign-in').hidden")
    browser.run(f"document.getElementById('token').value = {json.dumps(make.alice_token)}")
    browser.run("document.getElementById('sign-in-form').requestSubmit()")
    browser.until("document.querySelectorAll('#queue-rows button').length > 0")
    assert "mine" in text(browser, "queue-rows")
    assert "theirs" not in browser.run("document.documentElement.outerHTML")
    # The token is nowhere that a script could find it.
    kept = browser.run(
        "document.cookie + JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + location.href"
    )
    assert make.alice_token not in kept + browser.run("document.getElementById('token').value")
    assert browser.run("document.cookie") == ""


def test_a_thousand_waiting_jobs_are_shown_some_at_a_time(
    signed_in: Any, service: Any, make: Any, shots: Path
) -> None:
    service.views = {i: make.view(i, name=f"sweep-{i}", submitted=make.noon - 2000 + i) for i in range(1000)}
    page = signed_in()
    assert page.run("document.querySelectorAll('#queue-rows tr').length") == 20
    assert text(page, "queue-count") == "1,000"
    assert text(page, "queue-more") == "Show 100 more of 980"
    page.run("document.getElementById('queue-more').click()")
    assert page.run("document.querySelectorAll('#queue-rows tr').length") == 120
    page.shot(shots / "thousand-1400.png")
    page.run(
        "document.getElementById('find').value = 'sweep-777'; document.getElementById('find').dispatchEvent(new Event('input', { bubbles: true }))"
    )
    assert text(page, "jobs-rows").startswith("sweep-777")


def test_names_of_all_kinds_stay_names(signed_in: Any, service: Any, make: Any, shots: Path) -> None:
    """Case C67: nothing anybody named is markup, moves other words or hides."""
    for number, name in enumerate(HOSTILE):
        service.views[number] = make.view(
            number, name=name, user=name, tenant=name, reason=name, model=name, command=(name,)
        )
    service.views[0] = make.view(
        0, name=HOSTILE[0], status="running", devices=(HOSTILE[1],), started=make.noon - 60
    )
    service.device_views = [
        make.device(0, name=HOSTILE[1], device_type=HOSTILE[2], state=f"down: {HOSTILE[0]}")
    ]
    service.policy = HOSTILE[0]
    folder = service.folder / "0"
    folder.mkdir(parents=True)
    (folder / "stdout.log").write_text("\n".join(HOSTILE))
    page = signed_in()
    page.run("document.querySelector('#jobs-rows button').click()")
    page.until("document.getElementById('job-output').textContent.length > 20")
    page.run("document.querySelector('#job-buttons [data-kind=cancel]').click()")
    page.shot(shots / "hostile.png", whole=False)
    assert (
        page.run(
            "document.querySelectorAll('main img, main script, dialog img, dialog script, svg[onload]').length"
        )
        == 0
    )
    assert page.run("document.title").endswith("cotenant")
    shown = text(page, "queue-rows")
    assert HOSTILE[1] in shown
    assert "\\u202egpj.exe" in shown
    assert "\\u001b[31mred" in shown
    assert HOSTILE[6] in shown
    assert "\u202e" not in page.run("document.getElementById('content').textContent")
    assert HOSTILE[0] in text(page, "job-output")
    assert page.run("document.documentElement.scrollWidth") <= 1400
    assert page.complaints() == []


def test_a_job_is_suspended_with_keys_alone(signed_in: Any, served: Any, busy: Any, shots: Path) -> None:
    page = signed_in()
    page.go(served.url)
    page.until("document.querySelectorAll('#jobs-rows button').length > 0")
    page.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.press("3")
    assert page.run("document.activeElement.id") == "jobs-title"
    for _ in range(4):  # the field, the choice, the table, the first job
        page.press("Tab")
    page.press("Enter")
    page.until(
        "document.getElementById('job').open && document.getElementById('job-story').children.length > 0"
    )
    assert page.run("document.activeElement.id") == "job-title"
    assert text(page, "job-title") == "resnet50-imagenet (6)"
    page.shot(shots / "job.png", whole=False)
    assert page.run(AUDIT) == []
    page.press("Tab")
    page.press("Tab")
    assert page.run("document.activeElement.dataset.kind") == "suspend"
    page.press("Enter")
    assert page.run("document.getElementById('ask').open")
    # The careful answer has the focus.
    assert page.run("document.activeElement.id") == "ask-no"
    page.press("Enter")
    page.until("!document.getElementById('ask').open")
    assert busy.views[6].status == "running"
    page.press("Enter")
    page.press("Tab", shift=True)
    assert page.run("document.activeElement.id") == "ask-yes"
    page.shot(shots / "ask.png", whole=False)
    page.press("Enter")
    page.until("document.getElementById('job-said').textContent.startsWith('Suspend: asked for')")
    assert busy.views[6].status == "held"
    page.until("document.getElementById('job-line').innerText.startsWith('suspended by its owner')")
    page.press("Escape")
    page.until("!document.getElementById('job').open")


def test_priority_and_cancel_are_asked_once_each_and_refusals_are_told(
    signed_in: Any, busy: Any, make: Any
) -> None:
    page = signed_in()
    page.run("document.querySelector('#queue-rows button').click()")
    page.until("document.querySelectorAll('#job-buttons button').length === 4")
    page.run("document.querySelector('#job-buttons [data-kind=priority]').click()")
    page.run("document.getElementById('ask-value').value = '42'; document.getElementById('ask-yes').click()")
    page.until("document.getElementById('job-said').textContent.startsWith('Change priority: asked')")
    assert [v.priority for v in busy.views.values()].count(42) == 1
    number = next(v.id for v in busy.views.values() if v.priority == 42)
    page.run("document.querySelector('#job-buttons [data-kind=cancel]').click()")
    busy.views[number] = make.view(number, status="done", reason="done")
    page.run("document.getElementById('ask-yes').click()")
    page.until("document.getElementById('job-said').textContent.startsWith('Not done')")
    assert "has ended" in text(page, "job-said")
    page.until("document.querySelector('#job-buttons [data-kind=cancel]').disabled")


def test_changes_appear_by_themselves_and_are_told_aloud(signed_in: Any, service: Any, make: Any) -> None:
    page = signed_in()
    service.views[0] = make.view(
        0, name="fresh one", status="running", devices=("gpu0",), started=make.noon - 10
    )
    service.tell(
        "started", id=0, tenant="", name="fresh one", devices=[0], attempt=1, t=5.0, wall=make.noon - 10
    )
    page.until("document.getElementById('jobs-rows').innerText.includes('fresh one')")
    assert text(page, "told") == "fresh one started"
    assert page.run("document.getElementById('told').getAttribute('aria-live')") == "polite"
    page.until("document.querySelectorAll('#timeline-plot .piece').length === 1")


def test_whoever_stands_on_a_row_stays_there_when_it_changes(signed_in: Any, service: Any, make: Any) -> None:
    service.views = {i: make.view(i, name=f"j{i}") for i in range(3)}
    page = signed_in()
    page.run("document.querySelectorAll('#queue-rows button')[2].focus()")
    service.views[2] = make.view(2, name="j2", reason="its turn is next")
    del service.views[0]
    service.tell("held", id=2, tenant="", name="j2")
    page.until("document.getElementById('queue-rows').innerText.includes('its turn is next')")
    assert page.run("document.activeElement.innerText") == "j2"


def test_a_lost_connection_is_told_and_found_again(
    signed_in: Any, served: Any, service: Any, known: Any, make: Any, shots: Path
) -> None:
    from cotenant.live.api import create_app, serve

    service.views[0] = make.view(0, name="still there")
    page = signed_in()
    served.stop()
    page.until("document.getElementById('link').dataset.state === 'lost'")
    assert "Connection lost at" in text(page, "lost")
    assert "still there" in text(page, "queue-rows")
    page.shot(shots / "lost.png", whole=False)
    again = serve(create_app(service, known), port=served.port)
    try:
        # Sessions do not outlive the scheduler: the form asks for the token again.
        page.until("!document.getElementById('sign-in').hidden")
        page.run(f"document.getElementById('token').value = {json.dumps(make.admin_token)}")
        page.run("document.getElementById('sign-in-form').requestSubmit()")
        page.until("document.getElementById('link').dataset.state === 'on'")
        assert page.run("document.getElementById('lost').hidden")
    finally:
        again.stop()


def test_motion_keys_and_signing_out_are_as_people_want_them(signed_in: Any, busy: Any) -> None:
    page = signed_in()
    assert page.run("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.run("getComputedStyle(document.querySelector('.meter rect')).transitionDuration") == "0s"
    page.run("document.activeElement.blur()")
    page.press("?")
    assert page.run("document.getElementById('help').open")
    page.run("document.getElementById('keys-on').click()")
    page.press("Escape")
    page.until("!document.getElementById('help').open")
    page.press("3")
    assert page.run("document.activeElement.id") != "jobs-title"
    page.run("document.getElementById('sign-out').click()")
    page.until("document.getElementById('sign-in') && !document.getElementById('sign-in').hidden")
    assert page.run("document.getElementById('content').hidden")
