import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Classifier(L.LightningModule):
    def __init__(self, learning_rate=1e-2, hidden=32):
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(8, hidden), nn.ReLU(), nn.Linear(hidden, 3))
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        inputs, labels = batch
        loss = self.criterion(self.layers(inputs), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        inputs, labels = batch
        logits = self.layers(inputs)
        self.log("val_loss", self.criterion(logits, labels), prog_bar=True)
        self.log("val_acc", (logits.argmax(-1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.learning_rate)


L.seed_everything(1)
inputs = torch.randn(640, 8)
labels = (inputs @ torch.randn(8, 3)).argmax(-1)
train_set, eval_set = TensorDataset(inputs[:512], labels[:512]), TensorDataset(inputs[512:], labels[512:])
trainer = L.Trainer(
    max_epochs=5,
    accelerator="cpu",
    log_every_n_steps=1,
    logger=[CSVLogger(".", name="csv"), TensorBoardLogger(".", name="tb")],
    gradient_clip_val=1.0,
    callbacks=[L.pytorch.callbacks.LearningRateMonitor(logging_interval="step")],
)
trainer.fit(Classifier(), DataLoader(train_set, batch_size=64, shuffle=True), DataLoader(eval_set, batch_size=64))
