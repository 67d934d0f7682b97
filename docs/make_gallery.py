"""Draws the gallery and writes its page: `python docs/make_gallery.py`, in an environment with gradviz. Takes minutes.

`python docs/make_gallery.py vae_digits gpt` draws only these again. Each picture is what `gradviz render SCRIPT` draws without
any option. `python docs/make_gallery.py --check` runs the scripts and says which picture is not true: an op of two operands with
one arrow and no reason for it, several ops under the title of one, a label at a foreign wire. `.ci/style.py` compares the page with
this file, `tests/test_gallery.py` three of the pictures. The site's build writes the live pages.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
PAGE = DOCS / "gallery.md"
PICTURES = DOCS / "gallery"
COLUMNS = 3


class Family(NamedTuple):
    """A family of models: a script of it, from the repository's root, and what its picture shows."""

    title: str
    script: str
    shows: str

    @property
    def name(self) -> str:
        """What the picture is called."""
        return Path(self.script).stem


SAMPLES = "samples"
PROGRAMS = "tests/real/programs"
GROUPS: dict[str, tuple[Family, ...]] = {
    "Images": (
        Family(
            "Multilayer perceptron",
            f"{SAMPLES}/mlp_training.py",
            "A layer is one box; edges carry variable names and shapes.",
        ),
        Family(
            "Residual network",
            f"{PROGRAMS}/resnet18_cifar.py",
            "The first block of each kind is open; skips pass it on the side.",
        ),
        Family(
            "EfficientNet",
            f"{PROGRAMS}/efficientnet_mbconv.py",
            "Stochastic depth, and a loss with label smoothing and a mask.",
        ),
        Family(
            "U-Net",
            f"{PROGRAMS}/unet_dice.py",
            "Encoder down, decoder up, skips between them; cross entropy plus Dice.",
        ),
        Family(
            "Swin",
            f"{PROGRAMS}/swin_windows.py",
            "Windows are rolled, attended to, and rolled back.",
        ),
    ),
    "Language and sequences": (
        Family(
            "GPT",
            f"{SAMPLES}/gpt.py",
            "One block open, three alike closed; the embedding is tied to the head.",
        ),
        Family(
            "Encoder and decoder",
            f"{PROGRAMS}/transformer_translation.py",
            "`nn.Transformer`: the memory enters every decoder layer.",
        ),
        Family(
            "Mixture of experts",
            f"{PROGRAMS}/moe_router.py",
            "A router, four experts, and an auxiliary loss of both layers.",
        ),
        Family(
            "State space model",
            f"{PROGRAMS}/mamba_minimal.py",
            "The selective scan is a loop of 12 steps, its last 11 in one box.",
        ),
        Family(
            "LSTM",
            f"{SAMPLES}/lstm.py",
            "The first step of the cell open, the other 19 in one box.",
        ),
        Family(
            "Attention over a recurrent encoder",
            f"{PROGRAMS}/seq2seq_attention.py",
            "Encoder and decoder are loops; the loss sums over steps.",
        ),
        Family(
            "Speech with CTC",
            f"{PROGRAMS}/speech_ctc.py",
            "Convolutions, two bidirectional GRUs, and `CTCLoss`.",
        ),
    ),
    "Generative models": (
        Family(
            "Variational autoencoder",
            f"{PROGRAMS}/vae_digits.py",
            "`mu` and `logvar` go to the sample and to the KL term.",
        ),
        Family(
            "VQ-VAE",
            f"{PROGRAMS}/vqvae_ema.py",
            "A codebook with two latent losses, and the straight-through sum.",
        ),
        Family(
            "Diffusion",
            f"{PROGRAMS}/ddpm_small.py",
            "A U-Net whose blocks all take the embedding of the time step.",
        ),
        Family(
            "GAN",
            f"{PROGRAMS}/dcgan.py",
            "The first `backward()` is the discriminator's, on real images.",
        ),
        Family(
            "Normalizing flow",
            f"{PROGRAMS}/realnvp_moons.py",
            "Coupling layers, and the log-determinant that they add up.",
        ),
    ),
    "Several inputs": (
        Family(
            "Contrastive learning",
            f"{PROGRAMS}/simclr.py",
            "Features, a similarity matrix, positives and negatives.",
        ),
        Family(
            "Siamese towers",
            f"{PROGRAMS}/siamese_signatures.py",
            "The second tower says that it has the parameters of the first.",
        ),
        Family(
            "Images and texts",
            f"{PROGRAMS}/clip_pairs.py",
            "Two encoders, a learned temperature, a loss for each direction.",
        ),
    ),
    "Science, graphs, decisions": (
        Family(
            "Graph network",
            f"{PROGRAMS}/gcn_no_library.py",
            "Attention and convolution over a sparse adjacency matrix.",
        ),
        Family(
            "Radiance field",
            f"{PROGRAMS}/nerf_tiny.py",
            "Chunks of rays through one network, then volume rendering.",
        ),
        Family(
            "Neural ODE",
            f"{PROGRAMS}/neural_ode_rk4.py",
            "Nine Runge-Kutta steps, eight of them in one box.",
        ),
        Family(
            "Proximal policy optimization",
            f"{PROGRAMS}/ppo_cleanrl.py",
            "Actor, critic, and the clipped terms of the loss by name.",
        ),
        Family(
            "Meta-learning",
            f"{PROGRAMS}/maml_sinusoid.py",
            "The inner loss of MAML, through clones of the parameters.",
        ),
    ),
}
FAMILIES = tuple(family for group in GROUPS.values() for family in group)

HEAD = f"""# Gallery

<!-- Written by docs/make_gallery.py. Change that file instead. -->

{len(FAMILIES)} families of models. Each picture is what `gradviz render SCRIPT` draws without any option, up to the first
`backward()`; no script imports gradviz. Each has a live page, in which modules open at a click: select the picture.

`python docs/make_gallery.py --check` checks all {len(FAMILIES)}: every operation has its operands (one that takes a tensor
twice, or a number, is listed with its line), no box of several operations has the title of one, and every label stands at its own
edge. None fails.

We also drew ten of them with torchview 0.2.7 and torchvista 0.2.13, which run a model again and draw it without its loss.
By default neither joins alike layers; torchvista has `show_compressed_view`, which we did not compare.
"""


def main(chosen: list[str]) -> None:
    """Draw the pictures, or only the chosen ones, and write the page; or check them."""
    if chosen == ["--check"]:
        faults = {family.name: untrue(family) for family in FAMILIES}
        for name, found in faults.items():
            print(f"{name}: {'; '.join(found) or 'true'}")
        sys.exit(any(faults.values()))
    PICTURES.mkdir(exist_ok=True)
    drawn = [family for family in FAMILIES if not chosen or family.name in chosen]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(draw, drawn))

    names = {family.name for family in FAMILIES}
    for picture in PICTURES.glob("*.svg"):
        if picture.stem not in names:
            picture.unlink()
    PAGE.write_text(document(), encoding="utf-8")


def draw(family: Family, folder: Path = PICTURES, suffix: str = "svg") -> Path:
    """Run the script in its own folder, as a user would, and draw it into this one."""
    script = ROOT / family.script
    picture = folder / f"{family.name}.{suffix}"
    command = [sys.executable, "-m", "gradviz", "render", script.name]
    done = subprocess.run(
        [*command, "-o", str(picture)],
        cwd=script.parent,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{family.script}:\n{done.stdout}{done.stderr}")
    return picture


def untrue(family: Family) -> list[str]:
    """What a picture says that is not so."""
    sys.path.insert(0, str(ROOT))  # the checks are those of the corpus
    import gradviz
    from tests.real.operands import unexplained
    from tests.real.pictures import strays

    with tempfile.TemporaryDirectory() as folder:
        graph = gradviz.load(str(draw(family, Path(folder), "json")))
    picture = (PICTURES / f"{family.name}.svg").read_text(encoding="utf-8")
    return [*unexplained(family.name, graph), *strays(picture)]


def write(folder: Path, most: int | None = None) -> list[Path]:
    """Write the live pages, which the site has and the repository has not: the first ones, or all. The others say so."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        pages = list(pool.map(lambda one: draw(one, folder, "html"), FAMILIES[:most]))
    for family in FAMILIES[len(pages) :]:
        pages.append(folder / f"{family.name}.html")
        pages[-1].write_text("<p>Drawn when the site is published.", encoding="utf-8")
    return pages


def document() -> str:
    """The whole page."""
    return HEAD + "".join(
        f"\n## {title}\n{''.join(_tables(group))}" for title, group in GROUPS.items()
    )


def _tables(group: tuple[Family, ...]) -> Iterator[str]:
    for start in range(0, len(group), COLUMNS):
        row = group[start : start + COLUMNS]
        blank = [""] * (COLUMNS - len(row))
        lines = (
            [family.title for family in row] + blank,
            ["---"] * COLUMNS,
            [_picture(family) for family in row] + blank,
            [_words(family) for family in row] + blank,
        )
        yield "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _picture(family: Family) -> str:
    file = f"gallery/{family.name}"
    return f"[![{family.title}]({file}.svg)]({file}.html)"


def _words(family: Family) -> str:
    picture = f"[Picture alone](gallery/{family.name}.svg)"
    return f"{family.shows} [Script](../{family.script}). {picture}."


if __name__ == "__main__":
    main(sys.argv[1:])
