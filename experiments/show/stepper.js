  if (!root || root.classList.contains("live")) return;
  const controls = root.querySelector(".controls"), slider = root.querySelector("input");
  const told = root.querySelector("output"), play = root.querySelector('[data-do="play"]');
  const parts = root.querySelectorAll("[data-step]"), last = Number(slider.max);
  let timer = null;
  function show(step) {
    const now = Math.min(Math.max(step, 1), last);
    slider.value = now;
    parts.forEach((part) => {
      const mine = Number(part.dataset.step);
      part.classList.toggle("later", mine > now);
      part.classList.toggle("now", mine === now);
    });
    told.textContent = "step " + now + " of " + last;
    root.querySelectorAll("th.now").forEach((head) => {
      const box = head.closest(".scroll");
      const right = head.offsetLeft + head.offsetWidth, left = head.offsetLeft;
      if (right > box.scrollLeft + box.clientWidth) box.scrollLeft = right - box.clientWidth;
      if (left < box.scrollLeft) box.scrollLeft = left;
    });
  }
  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "play";
    play.setAttribute("aria-pressed", "false");
  }
  function begin() {
    if (Number(slider.value) >= last) show(1);
    play.textContent = "pause";
    play.setAttribute("aria-pressed", "true");
    timer = setInterval(() => {
      if (!root.isConnected) return stop();
      show(Number(slider.value) + 1);
      if (Number(slider.value) >= last) stop();
    }, 900);
  }
  controls.addEventListener("click", (event) => {
    const what = event.target.dataset.do;
    if (what === "play") return timer ? stop() : begin();
    if (!what) return;
    stop();
    show(Number(slider.value) + (what === "back" ? -1 : 1));
  });
  slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
  root.addEventListener("keydown", (event) => {
    event.stopPropagation();
    const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!way || event.target === slider) return;
    event.preventDefault();
    stop();
    show(Number(slider.value) + way);
  });
  root.classList.add("live");
  controls.hidden = false;
  show(1);
