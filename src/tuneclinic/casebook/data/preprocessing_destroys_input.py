"""Preprocessing leaves nothing of the input to see."""

from tuneclinic.case import Card, Case
from tuneclinic.casebook.data import _examples as make
from tuneclinic.casebook.learning import _examples as run
from tuneclinic.casebook.learning._facts import clean, conclude, facts, quoted
from tuneclinic.diagnosis import Finding
from tuneclinic.evidence import Evidence

FACT = "normalised-twice"


class PreprocessingDestroysInput(Case):
    id = "preprocessing-destroys-input"
    symptoms = {"cannot-overfit": 0.12}
    needs = ("script", "log")
    probe = "show"
    signatures = (
        r"trying to rescale already rescaled images",
        r"looks like you are trying to rescale already rescaled",
        r"input images have pixel values between 0 and 1, set `?do_rescale=false",
    )
    search = (
        "It looks like you are trying to rescale already rescaled images",
        "images normalised twice",
        "do_rescale=False",
        "BGR instead of RGB in preprocessing",
        "图片归一化了两次",
        "do_rescale 重复缩放",
        "通道顺序 BGR RGB 弄反",
        "预处理把图像毁了",
    )

    en = Card(
        title="Preprocessing destroys the input",
        sign="Ten samples cannot be memorised although labels and loss are right. Different pictures give nearly the same features. The log may say 'trying to rescale already rescaled images'.",
        cause="Pixels are scaled or normalised twice (ToTensor first, then the image processor's rescale by 1/255), so all of them end near one value; or channels are swapped, or pictures are shrunk to a few pixels.",
        remedy="Do it in one place only: pass PIL images to the processor, or call it with do_rescale=False (and do_normalize=False if transforms.Normalize has run). Images read with OpenCV need cv2.cvtColor(image, cv2.COLOR_BGR2RGB).",
        verify="Undo the normalisation of one batch and look at it: the picture is recognisable, and pixel_values have a standard deviation near 1.",
        prevention="Print minimum, maximum and standard deviation of pixel_values for the first batch of every run.",
        question="What are the minimum, maximum and standard deviation of pixel_values in the first batch?",
        quiz="All pixels lie between -1.80 and -1.79. What happened? They were divided by 255 twice and then normalised: the picture is black.",
    )
    zh = Card(
        title="预处理把输入毁掉了",
        sign="labels、loss 都对，10 条样本还是背不下来；不同图片的特征几乎一样。日志里可能有 trying to rescale already rescaled images。",
        cause="像素缩放或归一化做了两遍（ToTensor 之后，image processor 又除以 255），最后全挤在一个值附近；或者通道顺序反了，或者图被缩成几个像素。",
        remedy="只在一处做：直接把 PIL 图交给 processor，或者调用时加 do_rescale=False（前面做过 transforms.Normalize 就再加 do_normalize=False）。OpenCV 读的图要加 cv2.cvtColor(image, cv2.COLOR_BGR2RGB)。",
        verify="把一个 batch 反归一化回来看，图能认出来；pixel_values 的标准差接近 1。",
        prevention="每次训练都打印第一个 batch 的 pixel_values 的最小值、最大值和标准差。",
        question="第一个 batch 的 pixel_values 最小值、最大值、标准差各是多少？",
        quiz="像素全在 -1.80 到 -1.79 之间，怎么回事？除了两次 255 再归一化，图成了全黑。",
    )
    sick = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(FACT, quote="transforms.Normalize(mean, std)")),
            Evidence(
                log=run.logged(
                    "It looks like you are trying to rescale already rescaled images. If the input images have pixel values between 0 and 1, set `do_rescale=False` to avoid rescaling them again."
                )
            ),
        ]
    )
    healthy = run.Lazy(
        lambda: [
            Evidence(script=run.scripted(checked=(FACT,)), metrics=run.ran(loss=run.level(60, 2.0))),
            Evidence(script=run.scripted("padding-side-right-generation", checked=(FACT,)), data=make.rowset(10)),
        ]
    )

    def detect(self, seen: Evidence) -> Finding:
        proof = (*facts(seen, FACT), *quoted(self, seen))
        if proof:
            return self.confirmed(*proof)
        return conclude(self, clean(seen, FACT), missing=("script",))
